"""Fast implementations for CPUs: codecs, guard and first update as compiled loops over blocks that stay in a cache.

    loops     the inner loops of each codec, which LLVM vectorises
    guarding  the guard over a block, from the one source of the closed form
    codecs    whole tensors: encode, guard and escape; decode and scatter

Claimed: codes, escapes and decoded values are the reference's bit for bit; the tests compare them, and the conformance
kit judges them like anybody's.  Nothing here is imported before it is needed: numba takes half a second to import and
seconds to compile.
"""
