package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const waitName = "wait-gcs-ready"

// wait for the head. Its errors are shown only after a while: until the head is there
// they mean nothing, and people who read them believe that something is broken.
const wait = `SECONDS=0
until said=$(ray health-check --address %ADDRESS% 2>&1); do
  echo "$SECONDS seconds: the GCS at %ADDRESS% is not ready yet"
  if [ "$SECONDS" -ge 120 ]; then echo "$said"; fi
  sleep 5
done
echo "the GCS is ready"
`

// addWaitForGCS keeps a worker from starting Ray before the head answers. A worker that
// starts Ray too early ends, and the back-off of its restarts costs more than the wait.
func addWaitForGCS(s *Settings, c *rayv1.RayCluster, pod *corev1.Pod) {
	if findContainer(pod.Spec.InitContainers, waitName) != nil {
		return
	}
	ray := pod.Spec.Containers[0].DeepCopy()
	address := fqdn(s, c) + ":" + headPort(c)
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
		Name:            waitName,
		Image:           ray.Image,
		ImagePullPolicy: ray.ImagePullPolicy,
		Command:         shell(s),
		Args:            []string{strings.ReplaceAll(wait, "%ADDRESS%", address)},
		SecurityContext: ray.SecurityContext,
		Env:             ray.Env,
		EnvFrom:         ray.EnvFrom,
		VolumeMounts:    ray.VolumeMounts,
		Resources:       fixed("200m", "256Mi"),
	})
}
