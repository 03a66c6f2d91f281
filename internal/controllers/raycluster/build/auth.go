package build

import (
	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const (
	tokenVolume = "ray-token"
	tokenPath   = "/var/run/secrets/ray.io/serviceaccount"
	tokenFile   = "token"
	// tokenSeconds is the lifetime of the projected token. The kubelet renews it before it expires.
	tokenSeconds = int64(3600)
)

func tokenAuth(c *rayv1.RayCluster) bool {
	return c.Spec.AuthOptions != nil && c.Spec.AuthOptions.Mode == rayv1.AuthToken
}

func kubernetesAuth(c *rayv1.RayCluster) bool {
	a := c.Spec.AuthOptions
	return a != nil && a.EnableK8sTokenAuth != nil && *a.EnableK8sTokenAuth
}

// NeedsAuthSecret reports whether the cluster needs a generated token.
func NeedsAuthSecret(c *rayv1.RayCluster) bool {
	a := c.Spec.AuthOptions
	if a == nil || a.Mode == rayv1.AuthDisabled || kubernetesAuth(c) {
		return false
	}
	return a.SecretName == nil || *a.SecretName == ""
}

// AuthSecret returns the Secret with the token that authenticates clients of the cluster, or nil if
// the cluster needs no generated token.
func AuthSecret(c *rayv1.RayCluster, token string) *corev1.Secret {
	if !NeedsAuthSecret(c) {
		return nil
	}
	return &corev1.Secret{
		ObjectMeta: ownedMeta(c, AuthSecretName(c), ofCluster(c)),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{rayv1.KeyAuthToken: []byte(token)},
	}
}

// addAuth adds the token to all containers that connect to the cluster. The autoscaler's container
// is added later and gets the token there.
func addAuth(c *rayv1.RayCluster, pod *corev1.Pod) {
	if !tokenAuth(c) {
		return
	}
	if kubernetesAuth(c) {
		addVolume(pod, projectedToken())
	}
	addAuthEnv(c, &pod.Spec.Containers[0])
	if w := findContainer(pod.Spec.InitContainers, waitName); w != nil {
		addAuthEnv(c, w)
	}
}

// addAuthEnv sets the variables by which Ray in a container authenticates.
func addAuthEnv(c *rayv1.RayCluster, to *corev1.Container) {
	if !tokenAuth(c) {
		return
	}
	e := environment{&to.Env}
	e.addDefault(rayv1.EnvAuthMode, string(rayv1.AuthToken))
	if kubernetesAuth(c) {
		e.addDefault(rayv1.EnvEnableK8sTokenAuth, "true")
		if mountAt(to, tokenPath) == nil {
			to.VolumeMounts = append(to.VolumeMounts, corev1.VolumeMount{Name: tokenVolume, MountPath: tokenPath, ReadOnly: true})
		}
		return
	}
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: AuthSecretName(c)}, Key: rayv1.KeyAuthToken}
	e.addMissing(corev1.EnvVar{Name: rayv1.EnvAuthToken, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}})
}

// projectedToken returns a volume with a token of the Pod's service account, which the kubelet
// renews.
func projectedToken() corev1.Volume {
	seconds := tokenSeconds
	token := &corev1.ServiceAccountTokenProjection{Path: tokenFile, ExpirationSeconds: &seconds}
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: token}}},
	}}
}
