//! Owns: what the kernel refuses is told by operation, element and errno, and nothing of it took effect.
