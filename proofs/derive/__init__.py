"""How the proof files were found: tactics, and the derivations of the lemmas and of the theorem.

Claimed: nothing.  What these modules write is replayed by `proofs.replay`, which knows none of them.
"""
