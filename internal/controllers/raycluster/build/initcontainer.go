package build

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
)

const waitName = "wait-gcs-ready"

// wait waits for the head. It hides errors at first: until the head has started they are expected
// and mislead users.
const wait = `SECONDS=0
until output=$(ray health-check --address %ADDRESS% 2>&1); do
  echo "$SECONDS seconds: the GCS at %ADDRESS% is not ready yet"
  if [ "$SECONDS" -ge 120 ]; then echo "$output"; fi
  sleep 5
done
echo "the GCS is ready"
`

// addWaitForGCS adds an init container that delays Ray on a worker until the head answers. Ray
// would exit without a head, and the back-off of its restarts takes longer than the wait.
func addWaitForGCS(s *Settings, c *rayv1.RayCluster, pod *corev1.Pod) {
	if findContainer(pod.Spec.InitContainers, waitName) != nil {
		return
	}
	ray := pod.Spec.Containers[0].DeepCopy()
	address := headFQDN(s, c) + ":" + headPort(c)
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{
		Name:            waitName,
		Image:           ray.Image,
		ImagePullPolicy: ray.ImagePullPolicy,
		Command:         shellCommand(s),
		Args:            []string{strings.ReplaceAll(wait, "%ADDRESS%", address)},
		SecurityContext: ray.SecurityContext,
		Env:             ray.Env,
		VolumeMounts:    ray.VolumeMounts,
		Resources:       fixedResources("200m", "256Mi"),
	})
}
