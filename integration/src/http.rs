//! Owns one plain HTTP request in a namespace: to ask a health or metrics port. Knows nothing of what the answer means.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::host::Host;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What an HTTP server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Headers in the order they came; names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Response {
    /// Value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

impl Host {
    /// GETs a path from a server, as seen from this host.
    pub fn get(&self, at: SocketAddr, path: &str) -> io::Result<Response> {
        self.run(|| get(at, path))
    }
}

fn get(at: SocketAddr, path: &str) -> io::Result<Response> {
    ask(at, &format!("GET {path} HTTP/1.0\r\nHost: {at}\r\nAccept: */*\r\n\r\n"))
}

/// POSTs JSON to a server, from the namespace of the calling thread.
pub(crate) fn post(at: SocketAddr, path: &str, json: &serde_json::Value) -> io::Result<Response> {
    let body = json.to_string();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: {at}\r\nContent-Type: application/json\r\n");
    ask(at, &format!("{head}Content-Length: {length}\r\n\r\n{body}"))
}

fn ask(at: SocketAddr, request: &str) -> io::Result<Response> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    read(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, text))
}

/// Reads a whole response; HTTP/1.0 was asked for, so the body ends with the connection.
fn read(text: &str) -> Option<Response> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Response { status, headers, body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_reads_as_status_headers_and_body() {
        let response = read("HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nno: yet\n")
            .expect("all");
        assert_eq!((response.status, response.body.as_str()), (503, "no: yet\n"));
        assert_eq!(response.header("content-type"), Some("text/plain"));
    }
}
