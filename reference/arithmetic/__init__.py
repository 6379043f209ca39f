"""Number domains in which the one Adam step, the guard and the decodes are run."""

from guarded_moments.reference.arithmetic.numpy_binary32 import NumpyBinary32
from guarded_moments.reference.arithmetic.protocol import Arithmetic, OrderedArithmetic
from guarded_moments.reference.arithmetic.rounding_count import RoundingCount
from guarded_moments.reference.arithmetic.torch_binary32 import TorchBinary32
from guarded_moments.reference.arithmetic.torch_binary64 import TorchBinary64

__all__ = ["Arithmetic", "NumpyBinary32", "OrderedArithmetic", "RoundingCount", "TorchBinary32", "TorchBinary64"]
