//! Owns the labels of metrics and how they are written; knows nothing of the metrics.

use super::PolicyKind;
use nft_ir::Family as NftFamily;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use std::fmt::{self, Write as _};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FamilyLabel {
    pub(super) ip_family: IpFamily,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PolicyLabels {
    pub(super) traffic_policy: PolicyKind,
    pub(super) ip_family: IpFamily,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ProtocolLabels {
    pub(super) ip_family: IpFamily,
    pub(super) protocol: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CodeLabel {
    pub(super) code: String,
}

/// A family by upstream's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct IpFamily(NftFamily);

impl From<NftFamily> for IpFamily {
    fn from(family: NftFamily) -> Self {
        Self(family)
    }
}

impl From<NftFamily> for FamilyLabel {
    fn from(family: NftFamily) -> Self {
        Self { ip_family: family.into() }
    }
}

impl EncodeLabelValue for IpFamily {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self.0 {
            NftFamily::Ip => "IPv4",
            NftFamily::Ip6 => "IPv6",
        })
    }
}

impl EncodeLabelValue for PolicyKind {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(match self {
            Self::Internal => "internal",
            Self::External => "external",
        })
    }
}
