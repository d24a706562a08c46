"""``python -m streamfeed.train``: the main job."""

from streamfeed.train.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
