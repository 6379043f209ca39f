"""In the training loop: saving and loading an optimizer with its guarantee, and watching whether the guarantee held."""

from guarded_moments.reference.training.first_update import FirstUpdate, watch_first_update
from guarded_moments.reference.training.hooks import guard_checkpoints
from guarded_moments.reference.training.loading import load_guarded, load_state, save_guarded

__all__ = ["FirstUpdate", "guard_checkpoints", "load_guarded", "load_state", "save_guarded", "watch_first_update"]
