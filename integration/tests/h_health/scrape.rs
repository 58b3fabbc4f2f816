//! Owns the reading of a scrape in Prometheus' text form. Knows nothing of any metric.

use std::collections::{BTreeMap, BTreeSet};

/// A scrape.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    /// Types by name.
    pub(crate) types: BTreeMap<String, String>,
    /// Values by name and labels as they were written.
    series: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl Scrape {
    #[track_caller]
    pub(crate) fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declared.split_once(' ').expect(line);
                scrape.types.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').expect(line);
                let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
                let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
                let labels = labels.map(|label| {
                    let (key, value) = label.split_once('=').expect(line);
                    (key.to_owned(), value.trim_matches('"').to_owned())
                });
                scrape.series.push((name.to_owned(), labels.collect(), value.parse().expect(line)));
            }
        }
        scrape
    }

    /// The value of a series by its labels, in any order.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.series.iter().find(|(n, l, _)| n == name && *l == wanted).map(|(_, _, value)| *value)
    }

    /// The sum over all series of a name.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.series.iter().filter(|(n, _, _)| n == name).map(|(_, _, value)| value).sum()
    }

    /// Names of the labels of a name's series.
    pub(crate) fn labels(&self, name: &str) -> BTreeSet<Vec<&str>> {
        let of = self.series.iter().filter(|(n, _, _)| n == name);
        of.map(|(_, labels, _)| labels.keys().map(String::as_str).collect()).collect()
    }

    /// Upper bounds of a histogram's buckets, the last, infinite one left out.
    pub(crate) fn bounds(&self, name: &str) -> Vec<f64> {
        let name = format!("{name}_bucket");
        let buckets = self.series.iter().filter(|(n, _, _)| *n == name);
        let mut bounds: Vec<f64> = buckets
            .filter_map(|(_, labels, _)| labels.get("le")?.parse().ok())
            .filter(|le: &f64| le.is_finite())
            .collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        bounds
    }

    /// All names: declared ones, and those of series.
    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.types
            .keys()
            .map(String::as_str)
            .chain(self.series.iter().map(|(name, _, _)| name.as_str()))
            .collect()
    }
}
