//! Owns the numbering of the kernel's registers: sixteen of four bytes, or four of sixteen over the same memory.
//! Knows nothing of what they hold.

use rustables::sys;

/// How many 32-bit registers there are.
pub(crate) const COUNT: usize = 16;

/// The kernel's number for the 32-bit register at `index`, as nft writes it: the 16-byte register where one
/// begins there.
pub(crate) const fn number(index: usize) -> u32 {
    let index = index as u32;
    if index.is_multiple_of(4) { sys::NFT_REG_1 + index / 4 } else { sys::NFT_REG32_00 + index }
}

/// The index of a register by the kernel's number; `None` for the verdict register and unknown numbers.
pub(crate) const fn index(number: u32) -> Option<usize> {
    match number {
        sys::NFT_REG_1..=sys::NFT_REG_4 => Some((number - sys::NFT_REG_1) as usize * 4),
        sys::NFT_REG32_00..=sys::NFT_REG32_15 => Some((number - sys::NFT_REG32_00) as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_indices_are_inverse() {
        for at in 0..COUNT {
            assert_eq!(index(number(at)), Some(at));
        }
        assert_eq!((number(0), number(1), number(4), number(5)), (1, 9, 2, 13));
        assert_eq!((index(0), index(5), index(24)), (None, None, None));
    }
}
