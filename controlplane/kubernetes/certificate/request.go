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

// Requests sends signing requests to the server. Its errors are those of controlplane.
type Requests interface {
	// Submit stores a request, or reads the stored request of that name. It returns the request with
	// its state.
	Submit(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequest, error)
}

// ErrDenied means that a request was denied, or that the signer cannot sign it.
var ErrDenied = errors.New("denied")

// WaitingError means that a request is not approved yet, or that its certificate is not issued yet.
type WaitingError struct{ Request string }

// Error contains the commands that show and approve the request.
func (e *WaitingError) Error() string {
	return fmt.Sprintf("certificate signing request %s: not approved yet: check it with `kubectl get csr %[1]s`, then run `kubectl certificate approve %[1]s`", e.Request)
}

// commonName returns the user name of a node.
func commonName(node string) string { return "system:node:" + node }

// newRequest requests a client certificate for the node and that key, in the form that the
// cluster's approver accepts.
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

// issued returns the issued certificate with its key, as PEM and parsed.
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
