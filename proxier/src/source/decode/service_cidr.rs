//! Owns the reading of ServiceCIDRs; knows nothing of what is done with an unused ClusterIP.

use super::{Decoded, Decoder, ObjectKey, Rejections};
use k8s_openapi::api::networking::v1::ServiceCIDR;
use proxier_core::Change;

pub(super) fn decode(decoder: &mut Decoder, object: &ServiceCIDR) -> Decoded {
    let name = decoder.names.intern(object.metadata.name.as_deref().unwrap_or_default());
    let mut rejections = Rejections::of(ObjectKey::ServiceCidr(name.clone()));
    if name.is_empty() {
        rejections.add("metadata.name", "", "an object has a name");
        return Decoded { change: None, rejected: rejections.into_vec() };
    }
    let texts = object.spec.as_ref().and_then(|spec| spec.cidrs.as_deref()).unwrap_or_default();
    let cidrs = rejections.cidrs("spec.cidrs", texts);
    Decoded { change: Some(Change::ServiceCidr(name, cidrs)), rejected: rejections.into_vec() }
}
