// Package serveraddr lets clients find the server and the manager: each publishes its address and its CA
// certificates in a ConfigMap that every authenticated user may read.
package serveraddr

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The ConfigMaps.
const (
	Namespace = "k8s4r-system"
	// Name is that of the server, and ManagerName that of the manager.
	Name        = "k8s4r-server"
	ManagerName = "k8s4r-manager"
)

// HostName returns the name of a program in its certificate.
func HostName(program string) string { return program + "." + Namespace + ".svc" }

const (
	keyURL        = "url"
	keyCA         = "ca.crt"
	keyServerName = "server-name"
)

// Address is where a program is.
type Address struct {
	// URL without a path, such as https://10.0.0.7:8443.
	URL string
	// CA is PEM: the certificates that sign the server's. Empty: those that the client's system
	// trusts.
	CA []byte
	// ServerName that the server's certificate is for. Empty: the host of URL. It
	// lets clients reach the server under any address, as through a forwarded
	// port.
	ServerName string
}

// PublishAddress writes the address of a program into the ConfigMap of that name.
func PublishAddress(ctx context.Context, c client.Client, live client.Reader, name string, a Address) error {
	data := map[string]string{keyURL: a.URL, keyCA: string(a.CA), keyServerName: a.ServerName}
	if err := WriteConfigMap(ctx, c, live, name, data); err != nil {
		return fmt.Errorf("publish the address of %s: %w", name, err)
	}
	return nil
}

// WriteConfigMap makes data the content of a ConfigMap in Namespace, which is created if necessary.
// It reads the ConfigMap through live, which has no cache.
func WriteConfigMap(ctx context.Context, c client.Client, live client.Reader, name string, data map[string]string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	err := live.Get(ctx, client.ObjectKeyFromObject(m), m)
	switch {
	case apierrors.IsNotFound(err):
		m.Data = data
		return c.Create(ctx, m)
	case err != nil || maps.Equal(m.Data, data):
		return err
	}
	m.Data = data
	return c.Update(ctx, m)
}

// FindAddress reads the address of the server. It fails with a NotFound error if none has published one.
func FindAddress(ctx context.Context, r client.Reader) (Address, error) {
	return FindAddressOf(ctx, r, Name)
}

// FindAddressOf reads the address from the ConfigMap of a program, as FindAddress does.
func FindAddressOf(ctx context.Context, r client.Reader, name string) (Address, error) {
	var m corev1.ConfigMap
	if err := r.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &m); err != nil {
		return Address{}, err
	}
	return Address{URL: m.Data[keyURL], CA: []byte(m.Data[keyCA]), ServerName: m.Data[keyServerName]}, nil
}
