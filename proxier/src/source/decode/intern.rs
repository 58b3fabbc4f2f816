//! Owns one shared copy of each text that many objects repeat; knows nothing of what the texts mean.

use std::collections::HashSet;
use std::sync::Arc;

/// Shared copies of texts. Those that nobody else holds any more are dropped each time the set has doubled.
#[derive(Debug, Default)]
pub(super) struct Interner {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Interner {
    const LEAST_SWEEP: usize = 1024;

    /// The shared copy of this text.
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.texts.get(text) {
            return shared.clone();
        }
        if self.texts.len() >= self.sweep_at.max(Self::LEAST_SWEEP) {
            self.texts.retain(|shared| Arc::strong_count(shared) > 1);
            self.sweep_at = self.texts.len() * 2;
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_memory() {
        let mut names = Interner::default();
        let first = names.intern("node-1");
        assert!(Arc::ptr_eq(&first, &names.intern("node-1")));
        assert!(!Arc::ptr_eq(&first, &names.intern("node-2")));
    }

    #[test]
    fn texts_that_nobody_holds_go() {
        let mut names = Interner::default();
        let kept = names.intern("kept");
        for n in 0..100_000 {
            names.intern(&n.to_string());
        }
        assert!(names.texts.len() <= 2 * Interner::LEAST_SWEEP, "{}", names.texts.len());
        assert!(Arc::ptr_eq(&kept, &names.intern("kept")));
    }
}
