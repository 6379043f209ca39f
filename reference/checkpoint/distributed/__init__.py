"""Folders of torch.distributed.checkpoint, compressed shard by shard: no process ever holds the whole."""

from guarded_moments.reference.checkpoint.distributed.folders import (
    compress_shards,
    finish_compressed,
    is_compressed_folder,
    recover_folder,
    shards_of,
)
from guarded_moments.reference.checkpoint.distributed.shards import Folder

__all__ = [
    "Folder",
    "compress_shards",
    "finish_compressed",
    "is_compressed_folder",
    "recover_folder",
    "shards_of",
]
