//! Logging in at one hop.

use russh::MethodKind;
use russh::client::AuthResult;

use super::config::Settings;
use super::handler::{Handle, HopState};
use crate::ssh::error::{AuthRefusal, DialReason};
use crate::ssh::route::Hop;
use crate::ssh::signer::{Offer, OfferSigner, Offers, Public, SignError, permits_forwarding};

/// Offers the credentials one after the other. A credential is asked about straight away, without the request for no
/// authentication at all by which `ssh` learns the methods: a refusal names them too, and each saves a round trip.
pub(super) async fn log_in(
    handle: &mut Handle,
    hop: &Hop,
    offers: Offers,
    state: &HopState,
    settings: &Settings,
) -> Result<(), DialReason> {
    let Offers { offers, remarks } = offers;
    if offers.is_empty() {
        return Err(DialReason::NoIdentity { remarks });
    }
    let mut refusal = AuthRefusal {
        remarks,
        ..AuthRefusal::default()
    };
    let mut refused = false;
    for (count, offer) in offers.iter().enumerate() {
        if count >= settings.auth_tries {
            refusal
                .remarks
                .push(format!("{} (a server takes only so many)", offer.label));
            continue;
        }
        match attempt(handle, hop, offer).await {
            Ok(AuthResult::Success) => {
                state.add_fact("logged in by", offer.label.clone());
                if !offer.limits.is_empty() {
                    state.add_fact("credential limits", offer.limits.join(", "));
                }
                if let Public::Certificate(certificate) = &offer.public {
                    state.set_forwarding(permits_forwarding(certificate));
                }
                return Ok(());
            }
            Ok(AuthResult::Failure {
                remaining_methods,
                partial_success,
            }) => {
                refusal.offered.push(with_limits(offer));
                refusal.problems.extend(offer.problems.iter().cloned());
                if handle.is_closed() && remaining_methods.is_empty() {
                    state.wait_ended().await;
                    if !refused && state.said().is_none() {
                        let detail = state.closed_reason().unwrap_or_default();
                        return Err(DialReason::Closed { detail, said: None });
                    }
                    break;
                }
                refused = true;
                refusal.methods = remaining_methods
                    .iter()
                    .map(|method| <&str>::from(method).to_owned())
                    .collect();
                refusal.wants_more = partial_success;
                if partial_success || !remaining_methods.contains(&MethodKind::PublicKey) {
                    break;
                }
            }
            Err(SignError::Gone(_)) => {
                state.wait_ended().await;
                let detail = state.closed_reason().unwrap_or_default();
                return Err(DialReason::Closed {
                    detail,
                    said: state.said(),
                });
            }
            Err(error) => refusal.offered.push(format!("{}: {error}", offer.label)),
        }
    }
    refusal.said = state.said();
    Err(DialReason::AuthRefused(refusal))
}

fn with_limits(offer: &Offer) -> String {
    if offer.limits.is_empty() {
        return offer.label.clone();
    }
    format!("{} [limits: {}]", offer.label, offer.limits.join(", "))
}

async fn attempt(handle: &mut Handle, hop: &Hop, offer: &Offer) -> Result<AuthResult, SignError> {
    let binding = handle.agent_session_binding();
    let mut signer = OfferSigner::new(&offer.held, hop.agent_socket.as_deref(), binding).await?;
    let user = hop.user.as_str();
    let hash = offer.public.hash();
    match &offer.public {
        Public::Key(key) => {
            handle
                .authenticate_publickey_with(user, key.clone(), hash, &mut signer)
                .await
        }
        Public::Certificate(certificate) => {
            let certificate = certificate.as_ref().clone();
            handle
                .authenticate_certificate_with(user, certificate, hash, &mut signer)
                .await
        }
    }
}
