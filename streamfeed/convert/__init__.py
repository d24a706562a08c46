"""Convert: shards of any format into shards of another, exactly; their manifest, made and verified."""
