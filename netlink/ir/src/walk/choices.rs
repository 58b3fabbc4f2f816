//! Owns the enumeration of random numbers: each run of the walk takes the next combination. Knows nothing of what they
//! are drawn for.

/// A number that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Draw {
    /// The number, from 0.
    pub number: u32,
    /// Out of how many, each as likely as the others.
    pub of: u32,
}

/// The numbers of this run, and how many of them are used up.
#[derive(Debug, Default)]
pub(super) struct Choices {
    draws: Vec<Draw>,
    used: usize,
}

impl Choices {
    /// The next number of this run; 0 where this run is the first to come here.
    pub(super) fn draw(&mut self, of: u32) -> u32 {
        let draw = match self.draws.get(self.used) {
            Some(draw) => *draw,
            None => {
                let first = Draw { number: 0, of };
                self.draws.push(first);
                first
            }
        };
        self.used += 1;
        draw.number
    }

    /// What was drawn in this run.
    pub(super) fn drawn(&self) -> Vec<Draw> {
        self.draws[..self.used].to_vec()
    }

    /// Goes on to the next combination; `false` if this was the last.
    pub(super) fn advance(&mut self) -> bool {
        self.draws.truncate(self.used);
        self.used = 0;
        while let Some(last) = self.draws.last_mut() {
            if last.number + 1 < last.of {
                last.number += 1;
                return true;
            }
            self.draws.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_combinations_come_once() {
        let mut choices = Choices::default();
        let mut seen = Vec::new();
        loop {
            let first = choices.draw(2);
            // The second number is only drawn sometimes, and out of another many.
            seen.push((first, (first == 1).then(|| choices.draw(3))));
            if !choices.advance() {
                break;
            }
        }
        assert_eq!(seen, [(0, None), (1, Some(0)), (1, Some(1)), (1, Some(2))]);
    }
}
