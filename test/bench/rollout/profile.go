package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// profileTime is how long the CPU profile of the manager lasts. At the end of a short Rollout it is awaited.
const profileTime = 45 * time.Second

// startProfile writes a CPU profile of the manager to the file of -profile, and returns a function that waits
// for its end. Without the flag both do nothing.
func (s *bench) startProfile() (wait func()) {
	if *profile == "" {
		return func() {}
	}
	token, done := s.createProfiler(), make(chan error, 1)
	go func() { done <- writeProfile(s.profiles, token, *profile) }()
	return func() {
		if err := <-done; err != nil {
			s.Errorf("profile of the manager: %v", err)
		}
	}
}

// createProfiler returns the token of an account that may read profiles.
func (s *bench) createProfiler() string {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "profiler"}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "k8s4r-profiler"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
	}
	var token authenticationv1.TokenRequest
	ctx := context.Background()
	if err := errors.Join(s.Create(ctx, account), s.Create(ctx, binding), s.SubResource("token").Create(ctx, account, &token)); err != nil {
		s.Fatal(err)
	}
	return token.Status.Token
}

func writeProfile(url, token, path string) error {
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("%sprofile?seconds=%.0f", url, profileTime.Seconds()), http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(err, fmt.Errorf("%s: %.200s", answer.Status, data))
	}
	return os.WriteFile(path, data, 0o600)
}
