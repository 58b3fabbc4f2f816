//! Owns the form of a log line: klog's text, and Kubernetes' JSON; knows nothing of which lines are wanted.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// `I0102 15:04:05.000000   1234 module.rs:56] "message" key="value"`, times in UTC.
#[derive(Debug)]
pub(super) struct Klog;

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let letter = match *metadata.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = Timestamp::now().strftime("%m%d %H:%M:%S.%6f").to_string();
        write!(line, "{letter}{time} {:>7} {}] ", std::process::id(), place(metadata))?;
        let said = Said::of(event);
        line.write_str(&said.message)?;
        for (key, value) in &said.fields {
            write!(line, " {key}={value}")?;
        }
        writeln!(line)
    }
}

/// One object a line: `ts` in milliseconds since 1970, `caller`, `level` (errors and warnings), `msg`, `v`, fields.
#[derive(Debug)]
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let said = Said::of(event);
        let mut object = Map::new();
        #[expect(clippy::cast_precision_loss, reason = "microseconds of this era fit")]
        let millis = Timestamp::now().as_microsecond() as f64 / 1_000.0;
        object.insert("ts".to_owned(), millis.into());
        object.insert("caller".to_owned(), place(metadata).into());
        object.insert("msg".to_owned(), said.message.into());
        match *metadata.level() {
            Level::ERROR => object.insert("level".to_owned(), "error".into()),
            Level::WARN => object.insert("level".to_owned(), "warning".into()),
            Level::INFO => object.insert("v".to_owned(), 0.into()),
            Level::DEBUG => object.insert("v".to_owned(), 2.into()),
            Level::TRACE => object.insert("v".to_owned(), 4.into()),
        };
        object.extend(said.fields);
        writeln!(line, "{}", Value::Object(object))
    }
}

/// File and line, as klog has them; without a file the target.
fn place(metadata: &tracing::Metadata<'_>) -> String {
    match (metadata.file(), metadata.line()) {
        (Some(file), Some(line)) => format!("{}:{line}", file.rsplit('/').next().unwrap_or(file)),
        _ => metadata.target().to_owned(),
    }
}

/// What an event says.
#[derive(Debug, Default)]
struct Said {
    message: String,
    fields: Vec<(String, Value)>,
}

impl Said {
    fn of(event: &Event<'_>) -> Self {
        let mut said = Self::default();
        event.record(&mut said);
        said
    }

    fn add(&mut self, field: &Field, value: Value) {
        self.fields.push((field.name().to_owned(), value));
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A String takes every write.
            let _ = write!(self.message, "{value:?}");
        } else {
            self.add(field, format!("{value:?}").into());
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" { self.message.push_str(value) } else { self.add(field, value.into()) }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::{Arc, Mutex};
    use tracing::subscriber::with_default;
    use tracing_subscriber::fmt::MakeWriter;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn logged(json: bool) -> String {
        let lines = Lines::default();
        let builder = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false);
        let say = || tracing::warn!(service = "shop/web", count = 3, "no good");
        if json {
            with_default(builder.event_format(Json).finish(), say);
        } else {
            with_default(builder.event_format(Klog).finish(), say);
        }
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_is_klogs() {
        let line = logged(false);
        assert!(line.starts_with('W'), "{line}");
        assert!(line.contains(" format.rs:"), "{line}");
        assert!(line.ends_with("] no good service=\"shop/web\" count=3\n"), "{line}");
        assert_eq!(line.find(' '), Some(5), "{line}");
    }

    #[test]
    fn json_is_one_object_a_line() {
        let object: Value = serde_json::from_str(&logged(true)).unwrap();
        assert_eq!((&object["msg"], &object["level"]), (&"no good".into(), &"warning".into()));
        assert_eq!((&object["service"], &object["count"]), (&"shop/web".into(), &3.into()));
        assert!(object["ts"].as_f64().unwrap() > 1.6e12);
    }
}
