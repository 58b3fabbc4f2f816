//! Owns: every commit is noticed, and whose it was.
