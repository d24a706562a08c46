"""One model on several ranks: a copy on each (DDP), or in parts (FSDP2), both through Accelerate.

Whatever way it is held, a checkpoint has it whole, by the names of the bare model: any number of ranks, and either way,
goes on from it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from accelerate import Accelerator
from accelerate.state import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

from streamfeed.errors import ConfigError, StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accelerate.tracking import GeneralTracker
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from streamfeed.train.config import RunConfig

__all__ = ["load_moments", "make_accelerator", "norm_of", "whole_moments", "whole_weights"]

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def make_accelerator(config: RunConfig, trackers: Sequence[GeneralTracker] = ()) -> Accelerator:
    """Find the device and the ranks, and choose the precision and how the model is held. A collective.

    Raises :class:`~streamfeed.errors.ConfigError` where parts are asked for and there is one rank.
    """
    precision = config.train.precision
    if precision == "auto":
        precision = "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "fp32"
    mixed = "no" if precision == "fp32" else precision
    # Without being told so, Accelerate leaves the ranks of a machine without accelerators each to itself.
    options: dict[str, Any] = {"mixed_precision": mixed, "cpu": not torch.accelerator.is_available()}
    options["log_with"] = list(trackers) or None
    accelerator = _in_parts(options) if config.train.parallel == "fsdp" else Accelerator(**options)
    asked = int(os.environ.get("WORLD_SIZE", "1"))
    if accelerator.num_processes != asked:
        raise ConfigError(
            f"{asked} processes were started (WORLD_SIZE), and Accelerate has joined {accelerator.num_processes} of "
            "them; start with torchrun or accelerate launch"
        )
    if accelerator.device.type == "cpu":
        torch.use_deterministic_algorithms(True, warn_only=True)
    return accelerator


def _in_parts(options: dict[str, Any]) -> Accelerator:
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="transformer_based_wrap", cpu_ram_efficient_loading=False
    )
    accelerator = Accelerator(**options, fsdp_plugin=plugin)
    state = accelerator.state
    if accelerator.num_processes == 1:
        raise ConfigError("train.parallel fsdp splits the model over ranks, and there is one; start it with torchrun")
    if state.distributed_type == DistributedType.MULTI_CPU:
        # Accelerate turns its FSDP2 on for accelerators alone, and says nothing elsewhere; it works on gloo as well.
        if options["mixed_precision"] != "no":
            plugin.set_mixed_precision(options["mixed_precision"])
        state.fsdp_plugin = plugin
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP  # noqa: SLF001
        state.distributed_type = DistributedType.FSDP
    if not accelerator.is_fsdp2:
        raise ConfigError(f"train.parallel fsdp does not work here: Accelerate runs {state.distributed_type}")
    return accelerator


def whole_weights(accelerator: Accelerator, model: nn.Module) -> dict[str, Any] | None:
    """Return the weights by name, on the CPU of the first rank (a collective); None where each rank has them.

    What is shared is there once, as when transformers saves a model that it holds whole.
    """
    if not accelerator.is_fsdp2:
        return None
    once = {name for name, _ in model.named_parameters()}
    again = {name for name, _ in model.named_parameters(remove_duplicate=False)} - once
    whole = get_model_state_dict(model, options=_WHOLE)
    return {name: weight for name, weight in whole.items() if name not in again}


def whole_moments(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return the optimizer's state by parameter name, whole on the first rank. A collective where ranks hold parts.

    Empty before the first step: to be asked, torch would make a step of nothing, which counts as one.
    """
    if not optimizer.state:
        return {}
    return dict(get_optimizer_state_dict(model, optimizer, options=_WHOLE))


def load_moments(model: nn.Module, optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Put the moments back, each rank its part; rates and decays stay those of this run's settings.

    Raises :class:`~streamfeed.errors.StateError` where they are of another model.
    """
    if not saved:
        return
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    try:
        set_optimizer_state_dict(model, optimizer, saved, options=StateDictOptions(full_state_dict=True))
    except (KeyError, RuntimeError, ValueError) as error:
        raise StateError(f"the optimizer's state is of another model: {' '.join(str(error).split())[:300]}") from error
    for group, own in zip(optimizer.param_groups, groups, strict=True):
        group.update(own)


def norm_of(norm: Tensor) -> Tensor:
    """Return a gradient's norm as a plain scalar, also where it is spread over ranks (a collective then)."""
    whole = getattr(norm, "full_tensor", None)
    return norm if whole is None else whole()
