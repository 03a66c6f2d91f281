package build

import (
	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const (
	tokenVolume = "ray-token"
	tokenPath   = "/var/run/secrets/ray.io/serviceaccount"
	tokenFile   = "token"
	// tokenSeconds is how long a token of Kubernetes is good. The kubelet renews it
	// before that.
	tokenSeconds = int64(3600)
)

func tokenAuth(c *rayv1.RayCluster) bool {
	return c.Spec.AuthOptions != nil && c.Spec.AuthOptions.Mode == rayv1.AuthToken
}

func kubernetesAuth(c *rayv1.RayCluster) bool {
	a := c.Spec.AuthOptions
	return a != nil && a.EnableK8sTokenAuth != nil && *a.EnableK8sTokenAuth
}

// NeedsAuthSecret tells whether the cluster has a token of its own making.
func NeedsAuthSecret(c *rayv1.RayCluster) bool {
	a := c.Spec.AuthOptions
	if a == nil || a.Mode == rayv1.AuthDisabled || kubernetesAuth(c) {
		return false
	}
	return a.SecretName == nil || *a.SecretName == ""
}

// AuthSecret holds the token that the cluster lets in: 32 random bytes in base64. Nil:
// the cluster has none of its own making.
func AuthSecret(c *rayv1.RayCluster, token string) *corev1.Secret {
	if !NeedsAuthSecret(c) {
		return nil
	}
	return &corev1.Secret{
		ObjectMeta: owned(c, AuthSecretName(c), ofCluster(c)),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{rayv1.KeyAuthToken: []byte(token)},
	}
}

// addAuth gives the token to whoever speaks to the cluster. The autoscaler, which is
// added later, gets it there.
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

// addAuthEnv makes a container log in.
func addAuthEnv(c *rayv1.RayCluster, to *corev1.Container) {
	if !tokenAuth(c) {
		return
	}
	e := environment{&to.Env}
	e.addDefault(rayv1.EnvAuthMode, string(rayv1.AuthToken))
	if kubernetesAuth(c) {
		e.addDefault(rayv1.EnvEnableK8sTokenAuth, "true")
		e.addDefault(rayv1.EnvAuthTokenPath, tokenPath+"/"+tokenFile)
		if mountAt(to, tokenPath) == nil {
			to.VolumeMounts = append(to.VolumeMounts, corev1.VolumeMount{Name: tokenVolume, MountPath: tokenPath, ReadOnly: true})
		}
		return
	}
	ref := &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: AuthSecretName(c)}, Key: rayv1.KeyAuthToken}
	e.addMissing(corev1.EnvVar{Name: rayv1.EnvAuthToken, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: ref}})
}

// projectedToken is a token of the Pod's own account, which the kubelet renews.
func projectedToken() corev1.Volume {
	seconds := tokenSeconds
	token := &corev1.ServiceAccountTokenProjection{Path: tokenFile, ExpirationSeconds: &seconds}
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: token}}},
	}}
}
