package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Requests is how signing requests reach the server. Its errors are
// controlplane's.
type Requests interface {
	// Submit stores a request, or returns the stored one of its name, with what
	// has become of it.
	Submit(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error)
}

// ErrDenied means that someone refused the request, or that the signer cannot sign it.
var ErrDenied = errors.New("denied")

// WaitingError means that nobody has approved a request, or its certificate is not made yet.
type WaitingError struct{ Request string }

// Error says how to see it and approve it.
func (e *WaitingError) Error() string {
	return fmt.Sprintf("certificate signing request %s: not approved yet: check it with `kubectl get csr %[1]s`, then run `kubectl certificate approve %[1]s`", e.Request)
}

// commonName is the user that a node is.
func commonName(node string) string { return "system:node:" + node }

// newRequest requests a client certificate of the node, for that key, in the
// form that the cluster's approver knows.
func newRequest(node string, key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{Organization: []string{"system:nodes"}, CommonName: commonName(node)},
	}, key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(append(public, node...))
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-csr-%x", digest[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}

// issued returns the certificate that the request was answered with, as PEM and
// with its key.
func issued(request *certificatesv1.CertificateSigningRequest, node string, key *ecdsa.PrivateKey) ([]byte, *tls.Certificate, error) {
	for _, condition := range request.Status.Conditions {
		if condition.Type != certificatesv1.CertificateApproved && condition.Status != corev1.ConditionFalse {
			return nil, nil, fmt.Errorf("certificate signing request %s: %w: %s: %s", request.Name, ErrDenied, condition.Reason, condition.Message)
		}
	}
	if len(request.Status.Certificate) == 0 {
		return nil, nil, &WaitingError{Request: request.Name}
	}
	text, err := encode(key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := Parse(append(append([]byte{}, request.Status.Certificate...), text...), commonName(node))
	if err != nil {
		return nil, nil, fmt.Errorf("certificate signing request %s: %w: the certificate cannot be used: %w", request.Name, ErrDenied, err)
	}
	return request.Status.Certificate, certificate, nil
}
