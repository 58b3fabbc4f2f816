//! Owns: what nft lists of our tables is what it lists of the same table loaded by `nft -f`. Knows nothing of
//! dumps.
