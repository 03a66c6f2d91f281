package main

import (
	"context"
	"crypto"
	"crypto/tls"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
	"k8s4r.io/k8s4r/internal/server/ca"
	"k8s4r.io/k8s4r/internal/testkit"
)

// openAuthority returns the CA of the robots of `k8s4r up`.
func openAuthority(up *testkit.Up) (*ca.Authority, error) {
	return ca.Open(filepath.Join(up.DataDir, "pki", "robots"))
}

// joinRobot issues a certificate and creates the Robot that accepts its key, as if the robot had joined:
// the join API is limited to a few robots a second from one address.
func (f *fleet) joinRobot(ctx context.Context, id string) (*tls.Config, error) {
	key, _, err := keyfile.NewKey()
	if err != nil {
		return nil, err
	}
	c, err := f.authority.SignRobot(id, key.Public())
	if err != nil {
		return nil, err
	}
	r := &v1alpha1.Robot{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id}, Spec: v1alpha1.RobotSpec{RobotID: id}}
	if err := f.Create(ctx, r); err != nil {
		return nil, fmt.Errorf("create robot: %w", err)
	}
	before, fingerprint, now := r.DeepCopy(), identity.CertificateFingerprint(c), metav1.Now()
	r.Status.Identity = &v1alpha1.RobotIdentity{
		Accepted:    &v1alpha1.AcceptedIdentity{Key: fingerprint, By: "Token", Time: now},
		Certificate: &v1alpha1.IssuedCertificate{SerialNumber: c.SerialNumber.Text(16), NotAfter: metav1.NewTime(c.NotAfter), Key: fingerprint},
	}
	if err := f.Status().Patch(ctx, r, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("status of robot: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: "127.0.0.1", RootCAs: f.authority.TrustPool(),
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: crypto.PrivateKey(key), Leaf: c}},
	}, nil
}
