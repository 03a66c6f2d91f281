package controllers

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
)

// authoredField is a field of an object that a user writes.
type authoredField struct {
	path string // such as spec.tasks[].replicas
	set  func(client.Object)
	// prepare creates what the field is a part of. Nil: it exists.
	prepare func(client.Object)
}

// locate returns a field of an object, which it creates if necessary.
type locate func(client.Object) reflect.Value

// fieldWalker collects the fields of a type, so that a field that is added later is tested too.
type fieldWalker struct {
	// whole are types that are set as a whole, because another kind covers their fields.
	whole  []any
	fields []authoredField
}

// nestedKubernetesTypes are the types of Kubernetes whose fields are set one by one. All types of
// this repository are, too.
var nestedKubernetesTypes = typeSet(
	corev1.PodTemplateSpec{}, corev1.PodSpec{}, corev1.Container{}, corev1.PodSecurityContext{}, corev1.SecurityContext{},
	corev1.Volume{}, corev1.VolumeSource{}, corev1.PersistentVolumeClaimSpec{}, corev1.Service{}, corev1.ServiceSpec{}, metav1.ObjectMeta{},
)

func typeSet(values ...any) map[reflect.Type]bool {
	all := map[reflect.Type]bool{}
	for _, v := range values {
		all[reflect.TypeOf(v)] = true
	}
	return all
}

func (w *fieldWalker) isNested(t reflect.Type) bool {
	if t.Kind() != reflect.Struct || typeSet(w.whole...)[t] {
		return false
	}
	return nestedKubernetesTypes[t] || strings.HasPrefix(t.PkgPath(), "k8s4r.io/k8s4r/api/")
}

func (w *fieldWalker) walk(t reflect.Type, path string, at locate) {
	switch {
	case t.Kind() == reflect.Pointer && w.isNested(t.Elem()):
		w.walk(t.Elem(), path, func(o client.Object) reflect.Value {
			v := at(o)
			if v.IsNil() {
				v.Set(reflect.New(t.Elem()))
			}
			return v.Elem()
		})
	case t.Kind() == reflect.Slice && w.isNested(t.Elem()):
		w.walk(t.Elem(), path+"[]", func(o client.Object) reflect.Value {
			v := at(o)
			if v.Len() == 0 {
				v.Set(reflect.MakeSlice(t, 1, 1))
			}
			return v.Index(0)
		})
	case w.isNested(t):
		w.walkStruct(t, path, at)
	default:
		w.fields = append(w.fields, authoredField{
			path: path, set: func(o client.Object) { at(o).Set(sampleOf(t, path)) }, prepare: func(o client.Object) { at(o) },
		})
	}
}

func (w *fieldWalker) walkStruct(t reflect.Type, path string, at locate) {
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "status" || t.Field(i).Type == reflect.TypeFor[metav1.TypeMeta]() {
			continue // written by controllers
		}
		below := path
		if name != "" {
			below += "." + name
		}
		w.walk(t.Field(i).Type, below, func(o client.Object) reflect.Value { return at(o).Field(i) })
	}
}

// fieldsOf returns the fields below a part of an object, which part returns as a pointer.
func fieldsOf[T client.Object](path string, part func(T) any, newObject func() T, whole ...any) []authoredField {
	w := &fieldWalker{whole: whole}
	w.walk(reflect.TypeOf(part(newObject())).Elem(), path, func(o client.Object) reflect.Value { return reflect.ValueOf(part(o.(T))).Elem() })
	return w.fields
}

// samples are values of types for which any text or number is not valid.
var samples = map[reflect.Type]any{
	reflect.TypeFor[resource.Quantity]():                    resource.MustParse("1"),
	reflect.TypeFor[metav1.Time]():                          metav1.Unix(1e9, 0),
	reflect.TypeFor[batchv1.Duration]():                     batchv1.Duration("10s"),
	reflect.TypeFor[intstr.IntOrString]():                   intstr.FromInt32(1),
	reflect.TypeFor[runtime.RawExtension]():                 runtime.RawExtension{Raw: []byte("{}")},
	reflect.TypeFor[corev1.RestartPolicy]():                 corev1.RestartPolicyOnFailure,
	reflect.TypeFor[corev1.ContainerRestartPolicy]():        corev1.ContainerRestartPolicyAlways,
	reflect.TypeFor[corev1.DNSPolicy]():                     corev1.DNSDefault,
	reflect.TypeFor[corev1.PullPolicy]():                    corev1.PullNever,
	reflect.TypeFor[corev1.TerminationMessagePolicy]():      corev1.TerminationMessageFallbackToLogsOnError,
	reflect.TypeFor[corev1.PreemptionPolicy]():              corev1.PreemptNever,
	reflect.TypeFor[corev1.MountPropagationMode]():          corev1.MountPropagationNone,
	reflect.TypeFor[corev1.ProcMountType]():                 corev1.DefaultProcMount,
	reflect.TypeFor[corev1.OSName]():                        corev1.Linux,
	reflect.TypeFor[corev1.PodFSGroupChangePolicy]():        corev1.FSGroupChangeOnRootMismatch,
	reflect.TypeFor[corev1.SupplementalGroupsPolicy]():      corev1.SupplementalGroupsPolicyStrict,
	reflect.TypeFor[corev1.PodSELinuxChangePolicy]():        corev1.SELinuxChangePolicyRecursive,
	reflect.TypeFor[corev1.SeccompProfileType]():            corev1.SeccompProfileTypeRuntimeDefault,
	reflect.TypeFor[corev1.AppArmorProfileType]():           corev1.AppArmorProfileTypeRuntimeDefault,
	reflect.TypeFor[corev1.PersistentVolumeAccessMode]():    corev1.ReadWriteOnce,
	reflect.TypeFor[corev1.PersistentVolumeMode]():          corev1.PersistentVolumeFilesystem,
	reflect.TypeFor[corev1.ServiceType]():                   corev1.ServiceTypeNodePort,
	reflect.TypeFor[corev1.ServiceAffinity]():               corev1.ServiceAffinityClientIP,
	reflect.TypeFor[corev1.ServiceExternalTrafficPolicy]():  corev1.ServiceExternalTrafficPolicyLocal,
	reflect.TypeFor[corev1.ServiceInternalTrafficPolicy]():  corev1.ServiceInternalTrafficPolicyLocal,
	reflect.TypeFor[corev1.IPFamily]():                      corev1.IPv4Protocol,
	reflect.TypeFor[corev1.IPFamilyPolicy]():                corev1.IPFamilyPolicySingleStack,
	reflect.TypeFor[corev1.UnsatisfiableConstraintAction](): corev1.ScheduleAnyway,
	reflect.TypeFor[corev1.PodTemplateSpec](): corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		ServiceAccountName: "x", Containers: []corev1.Container{{Name: "c", Image: "other"}},
	}},
	reflect.TypeFor[batchv1.Event]():                  batchv1.PodFailedEvent,
	reflect.TypeFor[batchv1.Action]():                 batchv1.AbortJobAction,
	reflect.TypeFor[batchv1.Iteration]():              batchv1.IterationAny,
	reflect.TypeFor[flowv1.RetainPolicy]():            flowv1.Delete,
	reflect.TypeFor[flowv1.FailurePolicy]():           flowv1.Continue,
	reflect.TypeFor[flowv1.DependencyCondition]():     flowv1.WhenFinished,
	reflect.TypeFor[rayv1.AutoscalerVersion]():        rayv1.AutoscalerV2,
	reflect.TypeFor[rayv1.GcsFaultToleranceBackend](): rayv1.BackendRedis,
	reflect.TypeFor[rayv1.StorageDeletionPolicy]():    rayv1.RetainStorage,
	reflect.TypeFor[rayv1.NetworkPolicyMode]():        rayv1.DenyAllIngress,
	reflect.TypeFor[corev1.Protocol]():                corev1.ProtocolUDP,
	reflect.TypeFor[rayv1.AuthMode]():                 rayv1.AuthToken,
	reflect.TypeFor[robotv1.Duration]():               robotv1.Duration("11s"),
	reflect.TypeFor[map[string]resource.Quantity]():   map[string]resource.Quantity{"camera": resource.MustParse("1")},
	reflect.TypeFor[corev1.ResourceList]():            corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
	reflect.TypeFor[corev1.NodeSelectorOperator]():    corev1.NodeSelectorOpExists,
}

// samplesByPath are values of fields, by the end of their path, for which a value of their type is
// not enough.
var samplesByPath = map[string]any{
	"tasks[].replicas":             int32(2),
	"numOfHosts":                   int32(2),
	"metadata.finalizers":          []string{"example.com/x"},
	"priorityClassName":            "system-node-critical",
	"runtimeClassName":             "x",
	"mountPath":                    "/y",
	"spec.plugins":                 map[string][]string{"svc": {"--publish-not-ready-addresses"}, "ssh": {"--ssh-port=2222"}, "ray": {"--head=t"}},
	"dependsOn.name":               []string{"u"},
	".resources":                   map[string]string{"CPU": "1"},
	"hostname":                     "x",
	"clusterIP":                    "None",
	"clusterIPs":                   []string{"None"},
	"externalIPs":                  []string{"192.0.2.1"},
	"loadBalancerIP":               "192.0.2.1",
	"pathType":                     "Exact",
	"spec.type":                    robotv1.JobTypeService,
	"desiredState":                 robotv1.DesiredPaused,
	"initTasks[].driver":           robotv1.DriverRawExec,
	"nfs.path":                     "/x",
	"hostAliases.ip":               "192.0.2.1",
	"dnsConfig.nameservers":        []string{"192.0.2.1"},
	"array.indexes":                "0-1",
	"perms":                        "0644",
	"operand":                      "!=",
	"restartPolicy.mode":           "delay",
	"delayFunction":                "fibonacci",
	"ffinity[].taskGroup":          "g",
	"networkTopology.mode":         "soft",
	"rayVersion":                   "2.70.0",
	"headGroupSpec.rayStartParams": map[string]string{"dashboard-port": "9000"},
	"headGroupSpec.labels":         map[string]string{"app.kubernetes.io/name": "x"},
	"tasks[].driver":               robotv1.DriverRawExec,
	"getterMode":                   "file",
	"changeMode":                   "noop",
	"strategy":                     robotv1.StrategyPack,
	"reconcile":                    robotv1.ReconcileKeepReplacement,
	"scope":                        "failed",
	"headService.spec.type":        string(corev1.ServiceTypeNodePort),
	"upscalingMode":                "Aggressive",
	"topologyPolicy":               "restricted",
	"storage.accessModes":          []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
	"networkMode":                  "none",
	"timeZone":                     "Etc/UTC",
	"templateRef.apiGroup":         flowv1.TemplateGroupRobots,
	"templateRef.kind":             "JobTemplate",
}

// sampleOf returns a value that differs from the zero value and, where that is known, is valid.
func sampleOf(t reflect.Type, path string) reflect.Value {
	if v, ok := sampleByPath(t, path); ok {
		return v
	}
	if value, ok := samples[t]; ok {
		return reflect.ValueOf(value)
	}
	v := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer:
		return pointerTo(sampleOf(t.Elem(), path))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Slice:
		v.Set(reflect.Append(v, sampleOf(t.Elem(), path)))
	case reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(sampleOf(t.Key(), path), sampleOf(t.Elem(), path))
	case reflect.Struct:
		setRequired(v, path)
	default:
		panic(fmt.Sprintf("%s: no sample of %s", path, t))
	}
	return v
}

// sampleByPath returns the value of samplesByPath with the longest matching path.
func sampleByPath(t reflect.Type, path string) (sample reflect.Value, ok bool) {
	longest := ""
	for end, value := range samplesByPath {
		v := reflect.ValueOf(value)
		if !strings.HasSuffix(path, end) || len(end) < len(longest) {
			continue
		}
		switch {
		case t.Kind() == reflect.Pointer && v.Kind() == t.Elem().Kind() && v.CanConvert(t.Elem()):
			sample, longest = pointerTo(v.Convert(t.Elem())), end
		case v.Kind() == t.Kind() && v.CanConvert(t):
			sample, longest = v.Convert(t), end
		}
	}
	return sample, longest != ""
}

func pointerTo(v reflect.Value) reflect.Value {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p
}

// setRequired sets the fields of a struct that are always in its JSON, or else the first one.
func setRequired(v reflect.Value, path string) {
	isEmpty := true
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if !strings.Contains(options, "omitempty") && !strings.Contains(options, "inline") {
			v.Field(i).Set(sampleOf(v.Field(i).Type(), path+"."+name))
			isEmpty = false
		}
	}
	if isEmpty && v.NumField() > 0 {
		name, _, _ := strings.Cut(v.Type().Field(0).Tag.Get("json"), ",")
		v.Field(0).Set(sampleOf(v.Field(0).Type(), path+"."+name))
	}
}

// completePod sets what a Pod needs beside the field of a test.
func completePod(p *corev1.PodSpec) {
	for name, all := range map[string][]corev1.Container{"c": p.Containers, "i": p.InitContainers} {
		for i := range all {
			if all[i].Name == "" {
				all[i].Name = name
			}
			if all[i].Image == "" {
				all[i].Image = "busybox"
			}
		}
	}
	for i := range p.Volumes {
		if p.Volumes[i].Name == "" {
			p.Volumes[i].Name = "v"
		}
	}
}
