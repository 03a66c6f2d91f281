package controllers

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s4r.io/k8s4r/api/batch/v1alpha1"
	cronv1 "k8s4r.io/k8s4r/api/cron/v1alpha1"
	flowv1 "k8s4r.io/k8s4r/api/flow/v1alpha1"
	rayv1 "k8s4r.io/k8s4r/api/ray/v1"
	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/controllers/cronjobflow"
	"k8s4r.io/k8s4r/internal/controllers/job"
	"k8s4r.io/k8s4r/internal/controllers/jobflow"
	"k8s4r.io/k8s4r/internal/controllers/raycluster/build"
	"k8s4r.io/k8s4r/internal/controllers/vcjob"
	"k8s4r.io/k8s4r/internal/core/flow/stepjob"
)

// authoredKind is a kind that users write and from which a controller creates objects.
type authoredKind struct {
	name     string // as shown
	resource string // with its group
	// covers is the resource whose creation is most of what the controller does. A user with
	// these two rights has no others.
	covers string
	fields []authoredField
	base   func() client.Object
	// build returns what the controller creates from an object.
	build func(client.Object) []client.Object
	// complete sets what the API server requires beside the field of a test. Nil: nothing.
	complete func(client.Object)
}

// authoredKinds returns all kinds that controllers create objects from.
func authoredKinds() []authoredKind {
	return []authoredKind{
		podJobKind(), rayClusterKind(), fullRayClusterKind(), podTemplateKind(), robotTemplateKind(),
		podFlowKind(), robotFlowKind(), cronFlowKind(), robotJobKind(),
	}
}

// anyTime is the clock of all plans.
var anyTime = time.Date(2030, 1, 1, 0, 0, 30, 0, time.UTC)

func podSpecOfTest() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "busybox"}}}
}

func podJobSpecOfTest() batchv1.JobSpec {
	spec := batchv1.JobSpec{Tasks: []batchv1.TaskSpec{vctask("t", 1), vctask("u", 1)}}
	for i := range spec.Tasks {
		spec.Tasks[i].Template.Spec = podSpecOfTest()
	}
	return spec
}

func podJobKind() authoredKind {
	newObject := func() *batchv1.Job { return &batchv1.Job{Spec: podJobSpecOfTest()} }
	fields := fieldsOf("spec", func(j *batchv1.Job) any { return &j.Spec }, newObject)
	for _, key := range []string{"volcano.sh/preemptable", "volcano.sh/cooldown-time", "volcano.sh/revocable-zone", "volcano.sh/x"} {
		fields = append(fields, labelField(key), annotationField(key))
	}
	return authoredKind{
		name: "vcjob", resource: "batch.volcano.sh/jobs", covers: "/pods", fields: fields,
		base: func() client.Object { return newObject() },
		build: func(o client.Object) []client.Object {
			j := o.DeepCopyObject().(*batchv1.Job)
			j.Status.State.Phase = batchv1.JobPending
			actions := vcjob.Plan(anyTime, 0, vcjob.Input{Job: j})
			objects := actions.EnsureObjects
			for _, pod := range actions.CreatePods {
				objects = append(objects, pod)
			}
			return objects
		},
		complete: func(o client.Object) { completePodJob(&o.(*batchv1.Job).Spec) },
	}
}

func completePodJob(spec *batchv1.JobSpec) {
	for i := range spec.Tasks {
		completePod(&spec.Tasks[i].Template.Spec)
		completePolicies(spec.Tasks[i].Policies)
		if p := spec.Tasks[i].PartitionPolicy; p != nil {
			p.PartitionSize = max(1, p.PartitionSize)
		}
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.MountPath == "" {
			v.MountPath = "/x"
		}
		if c := spec.Volumes[i].VolumeClaim; c != nil {
			completeClaim(c)
		} else if v := &spec.Volumes[i]; v.VolumeClaimName == "" {
			v.VolumeClaimName = "claim"
		}
	}
	completePolicies(spec.Policies)
	for _, n := range topologiesOf(spec) {
		if n != nil && n.Mode == "" {
			n.Mode = "soft"
		}
	}
}

func topologiesOf(spec *batchv1.JobSpec) []*batchv1.NetworkTopologySpec {
	all := []*batchv1.NetworkTopologySpec{spec.NetworkTopology}
	for i := range spec.Tasks {
		if p := spec.Tasks[i].PartitionPolicy; p != nil {
			all = append(all, p.NetworkTopology)
		}
	}
	return all
}

// completePolicies gives each policy an action, and an event unless it has an exit code.
func completePolicies(policies []batchv1.LifecyclePolicy) {
	for i := range policies {
		p := &policies[i]
		if p.Action == "" {
			p.Action = batchv1.AbortJobAction
		}
		if p.Event == "" && len(p.Events) == 0 && p.ExitCode == nil {
			p.Event = batchv1.PodFailedEvent
		}
	}
}

func completeClaim(c *corev1.PersistentVolumeClaimSpec) {
	if len(c.AccessModes) == 0 {
		c.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	if len(c.Resources.Requests) == 0 {
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	}
}

// labelField sets a label of the object itself.
func labelField(key string) authoredField {
	return authoredField{path: "metadata.labels[" + key + "]", set: func(o client.Object) { o.SetLabels(map[string]string{key: "x"}) }}
}

// annotationField sets an annotation of the object itself.
func annotationField(key string) authoredField {
	return authoredField{path: "metadata.annotations[" + key + "]", set: func(o client.Object) { o.SetAnnotations(map[string]string{key: "true"}) }}
}

func rayClusterOfTest() *rayv1.RayCluster {
	template := corev1.PodTemplateSpec{Spec: podSpecOfTest()}
	return &rayv1.RayCluster{Spec: rayv1.RayClusterSpec{
		RayVersion:    "2.60.0",
		HeadGroupSpec: rayv1.HeadGroupSpec{Template: *template.DeepCopy()},
		WorkerGroupSpecs: []rayv1.WorkerGroupSpec{{
			GroupName: "g", Template: template, NumOfHosts: 1,
			Replicas: ptr.To[int32](0), MinReplicas: ptr.To[int32](0), MaxReplicas: ptr.To[int32](4),
		}},
	}}
}

// rayMetadataFields are the keys of a cluster's own metadata that its controller reads, and others.
func rayMetadataFields(more ...string) []authoredField {
	fields := []authoredField{{path: "metadata.labels[" + rayv1.LabelOriginatedFromKind + "]", set: func(o client.Object) {
		o.SetLabels(map[string]string{rayv1.LabelOriginatedFromKind: "RayService"})
	}}, labelField("ray.io/x"), labelField("robot.k8s4r.io/x")}
	for _, key := range append(more,
		rayv1.AnnotationOverwriteCommand, rayv1.AnnotationEnableServeService, rayv1.AnnotationFTDeletionTimeout,
		rayv1.AnnotationDisableHeadRestart, rayv1.AnnotationIngressClass, rayv1.AnnotationTemplateHash, "example.com/x") {
		fields = append(fields, annotationField(key))
	}
	return fields
}

func rayClusterKind() authoredKind {
	return authoredKind{
		name: "RayCluster", resource: "ray.io/rayclusters", covers: "/pods",
		fields: append(fieldsOf("spec", func(c *rayv1.RayCluster) any { return &c.Spec }, rayClusterOfTest), rayMetadataFields(rayv1.AnnotationFTEnabled, rayv1.AnnotationStorageNamespace)...),
		base:   func() client.Object { return rayClusterOfTest() },
		build:  buildRayCluster, complete: completeRayCluster,
	}
}

// fullRayClusterKind is a cluster with all features, whose options have no effect otherwise.
func fullRayClusterKind() authoredKind {
	newObject := func() *rayv1.RayCluster {
		c := rayClusterOfTest()
		c.Spec.EnableInTreeAutoscaling, c.Spec.HeadGroupSpec.EnableIngress = ptr.To(true), ptr.To(true)
		c.Spec.AutoscalerOptions = &rayv1.AutoscalerOptions{Version: ptr.To(rayv1.AutoscalerV1)}
		c.Spec.AuthOptions = &rayv1.AuthOptions{Mode: rayv1.AuthToken}
		c.Spec.GcsFaultToleranceOptions = &rayv1.GcsFaultToleranceOptions{RedisAddress: "redis:6379"}
		c.Spec.WorkerGroupSpecs[0].NumOfHosts = 2
		return c
	}
	return authoredKind{
		name: "RayCluster with all features", resource: "ray.io/rayclusters", covers: "/pods",
		fields: append(fieldsOf("spec", func(c *rayv1.RayCluster) any { return &c.Spec }, newObject, corev1.PodTemplateSpec{}), rayMetadataFields()...),
		base:   func() client.Object { return newObject() },
		build:  buildRayCluster, complete: completeRayCluster,
	}
}

func completeRayCluster(o client.Object) {
	c := o.(*rayv1.RayCluster)
	completePod(&c.Spec.HeadGroupSpec.Template.Spec)
	for i := range c.Spec.WorkerGroupSpecs {
		completePod(&c.Spec.WorkerGroupSpecs[i].Template.Spec)
	}
	if p := c.Spec.NetworkPolicy; p != nil && len(p.WorkerGroups) > 0 {
		p.WorkerGroups[0].GroupName = "g"
	}
	switch o := c.Spec.GcsFaultToleranceOptions; {
	case o == nil:
	case o.Storage != nil:
		*o = rayv1.GcsFaultToleranceOptions{Backend: rayv1.BackendRocksDB, Storage: o.Storage}
	case o.RedisAddress == "":
		o.RedisAddress = "redis:6379"
	}
	if s := c.Spec.HeadGroupSpec.HeadService; s != nil && len(s.Spec.Ports) == 0 {
		s.Spec.Ports = []corev1.ServicePort{{Name: "x", Port: 99}}
	}
}

// buildRayCluster returns all objects of a cluster, with one worker of each group.
func buildRayCluster(o client.Object) (objects []client.Object) {
	c, s := o.(*rayv1.RayCluster), build.DefaultSettings()
	objects = append(objects, build.HeadPod(&s, c), build.HeadService(&s, c))
	for i := range c.Spec.WorkerGroupSpecs {
		objects = append(objects, build.WorkerPod(&s, c, &c.Spec.WorkerGroupSpecs[i], build.Replica{Name: "r"}))
	}
	objects = appendIfAny(objects, build.ServeService(&s, c))
	objects = appendIfAny(objects, build.HeadlessService(&s, c))
	objects = appendIfAny(objects, build.HeadIngress(c))
	objects = appendIfAny(objects, build.AuthSecret(c, "token"))
	objects = appendIfAny(objects, build.ServiceAccount(c))
	objects = appendIfAny(objects, build.BuildAutoscalerRole(c))
	objects = appendIfAny(objects, build.RoleBinding(c))
	objects = appendIfAny(objects, build.RedisCleanupJob(&s, c))
	objects = appendIfAny(objects, build.StorageClaim(c))
	for _, policy := range build.NetworkPolicies(c) {
		objects = append(objects, policy)
	}
	for _, o := range objects {
		annotations := o.GetAnnotations()
		for _, hash := range []string{rayv1.AnnotationTemplateHash, rayv1.AnnotationSharedHash, rayv1.AnnotationRecreateHash} {
			delete(annotations, hash)
		}
		o.SetAnnotations(annotations)
	}
	return objects
}

// appendIfAny appends an object unless the pointer is nil, which an interface would hide.
func appendIfAny[T any, P interface {
	*T
	client.Object
}](objects []client.Object, o P) []client.Object {
	if o == nil {
		return objects
	}
	return append(objects, o)
}

func podTemplateKind() authoredKind {
	newObject := func() *flowv1.JobTemplate { return &flowv1.JobTemplate{Spec: podJobSpecOfTest()} }
	return authoredKind{
		name: "JobTemplate of pods", resource: "flow.volcano.sh/jobtemplates", covers: "batch.volcano.sh/jobs",
		fields: append(fieldsOf("spec", func(t *flowv1.JobTemplate) any { return &t.Spec }, newObject, corev1.PodTemplateSpec{}), labelField("x"), annotationField("x")),
		base:   func() client.Object { return newObject() },
		build: func(o client.Object) []client.Object {
			return podJobs(&flowv1.JobFlow{Spec: flowv1.JobFlowSpec{Flows: []flowv1.Flow{{Name: "a"}}}}, o.(*flowv1.JobTemplate))
		},
		complete: func(o client.Object) { completePodJob(&o.(*flowv1.JobTemplate).Spec) },
	}
}

// podJobs returns the Job of the first step of a flow, which jobflow.JobName names.
func podJobs(f *flowv1.JobFlow, t *flowv1.JobTemplate) []client.Object {
	values, err := stepjob.ResolveValues(&f.Spec, &f.Spec.Flows[0], nil)
	if err != nil {
		return nil
	}
	spec, err := stepjob.BuildPodJobSpec(t, &f.Spec.Flows[0], values)
	if err != nil {
		return nil
	}
	return []client.Object{&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobflow.JobName("f", f.Spec.Flows[0].Name)}, Spec: spec}}
}

func robotJobs(f *flowv1.JobFlow, t *robotv1.JobTemplate) []client.Object {
	values, err := stepjob.ResolveValues(&f.Spec, &f.Spec.Flows[0], nil)
	if err != nil {
		return nil
	}
	spec, err := stepjob.BuildRobotJobSpec(t, &f.Spec.Flows[0], values)
	if err != nil {
		return nil
	}
	return []client.Object{&robotv1.Job{ObjectMeta: metav1.ObjectMeta{Name: jobflow.JobName("f", f.Spec.Flows[0].Name)}, Spec: spec}}
}

func robotJobSpecOfTest() robotv1.JobSpec {
	return robotv1.JobSpec{TaskGroups: []robotv1.TaskGroupDefinition{group("g", 1, "t", "u")}}
}

func robotTemplateKind() authoredKind {
	newObject := func() *robotv1.JobTemplate { return &robotv1.JobTemplate{Spec: robotJobSpecOfTest()} }
	return authoredKind{
		name: "JobTemplate on robots", resource: "robot.k8s4r.io/jobtemplates", covers: "",
		fields: append(fieldsOf("spec", func(t *robotv1.JobTemplate) any { return &t.Spec }, newObject), labelField("x"), annotationField("x")),
		base:   func() client.Object { return newObject() },
		build: func(o client.Object) []client.Object {
			return robotJobs(&flowv1.JobFlow{Spec: flowv1.JobFlowSpec{Flows: []flowv1.Flow{{Name: "a"}}}}, o.(*robotv1.JobTemplate))
		},
		complete: func(o client.Object) { completeRobotJob(&o.(*robotv1.JobTemplate).Spec) },
	}
}

// completeRobotJob gives each task the config of its driver, and each list item what it needs.
func completeRobotJob(spec *robotv1.JobSpec) {
	for i := range spec.TaskGroups {
		g := &spec.TaskGroups[i]
		for _, t := range g.TaskDefinitions() {
			completeTask(t)
		}
		if g.Placement != nil {
			for _, terms := range [][]robotv1.AffinityTerm{g.Placement.Affinity, g.Placement.AntiAffinity} {
				for i := range terms {
					if terms[i].RobotLabels == nil && terms[i].TaskGroup == nil {
						terms[i].RobotLabels = map[string]string{"a": "b"}
					}
				}
			}
		}
		for i := range g.Constraints {
			completeConstraint(&g.Constraints[i])
		}
	}
}

func completeConstraint(c *robotv1.Constraint) {
	if c.Operand == "" {
		c.Operand = "="
	}
	if c.LTarget == nil && c.LTargetLower == nil {
		c.LTarget = ptr.To("${robot.attr.os}")
	}
}

func completeTask(t *robotv1.TaskDefinition) {
	if t.Name == "" {
		t.Name = "i"
	}
	switch {
	case t.Config.DockerConfig != nil:
		t.Driver, t.Config.ExecConfig, t.Config.JavaConfig = robotv1.DriverDocker, nil, nil
		if t.Config.DockerConfig.Image == "" {
			t.Config.DockerConfig.Image = "busybox"
		}
	case t.Config.JavaConfig != nil:
		t.Driver, t.Config.ExecConfig = robotv1.DriverJava, nil
		if t.Config.JavaConfig.JarPath == "" {
			t.Config.JavaConfig.JarPath = "x.jar"
		}
	default:
		if t.Driver == "" {
			t.Driver = robotv1.DriverExec
		}
		if t.Config.ExecConfig == nil {
			t.Config.ExecConfig = &robotv1.ExecConfig{}
		}
		if t.Config.ExecConfig.Command == "" {
			t.Config.ExecConfig.Command = "true"
		}
	}
	completeFiles(t)
}

func completeFiles(t *robotv1.TaskDefinition) {
	for i := range t.Artifacts {
		if t.Artifacts[i].GetterSource == "" {
			t.Artifacts[i].GetterSource = "https://example.com/x"
		}
	}
	for i := range t.Templates {
		if f := &t.Templates[i]; f.SourcePath == nil && f.EmbeddedTmpl == nil {
			f.EmbeddedTmpl = ptr.To("x")
		}
		if t.Templates[i].DestPath == "" {
			t.Templates[i].DestPath = "x"
		}
	}
	for i := range t.Services {
		if t.Services[i].Name == "" {
			t.Services[i].Name = "x"
		}
	}
	if t.Resources == nil {
		return
	}
	for i := range t.Resources.Networks {
		completePorts(&t.Resources.Networks[i])
	}
}

func completePorts(n *robotv1.Network) {
	for i := range n.Ports {
		if n.Ports[i].Name == "" {
			n.Ports[i].Name = "x"
		}
	}
	for _, ports := range [][]robotv1.LabeledPort{n.ReservedPorts, n.DynamicPorts} {
		for i := range ports {
			if ports[i].Label == "" {
				ports[i].Label = "x"
			}
		}
	}
}

// offeredParams is a reference by which a template offers a place to the params of a flow.
const offeredParams = "$(params.p)"

// patchField sets a field of the patch of a flow's first step. newSpec returns an empty patch with
// the merge keys, and the Job whose spec it is.
func patchField[Spec any](f authoredField, newSpec func() (*Spec, client.Object), complete func(*Spec)) authoredField {
	patchWith := func(set func(client.Object)) func(client.Object) {
		return func(o client.Object) {
			spec, of := newSpec()
			set(of)
			complete(spec)
			raw, err := json.Marshal(spec)
			if err != nil {
				panic(err) // all fields have JSON tags
			}
			o.(*flowv1.JobFlow).Spec.Flows[0].Patch = &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: raw}}
		}
	}
	return authoredField{path: "spec.flows[].patch.jobSpec" + strings.TrimPrefix(f.path, "spec"), set: patchWith(f.set), prepare: patchWith(f.prepare)}
}

func flowOfTest(group string) *flowv1.JobFlow {
	return &flowv1.JobFlow{Spec: flowv1.JobFlowSpec{
		JobRetainPolicy: flowv1.Retain, Params: map[string]string{"p": "old"},
		Flows: []flowv1.Flow{{Name: "a", TemplateRef: &flowv1.TemplateReference{APIGroup: group, Name: "tour"}}},
	}}
}

// completeFlow gives each retry what it needs.
func completeFlow(spec *flowv1.JobFlowSpec) {
	if r := spec.Retry; r != nil && r.Generation == 0 {
		r.Generation = 1
	}
	for i := range spec.Flows {
		if r := spec.Flows[i].Retry; r != nil && r.Limit == 0 {
			r.Limit = 1
		}
	}
}

// paramFields set the values that templates refer to.
var paramFields = []authoredField{
	{path: "spec.params", set: func(o client.Object) { o.(*flowv1.JobFlow).Spec.Params = map[string]string{"p": "new"} }},
	{path: "spec.flows[].params", set: func(o client.Object) { o.(*flowv1.JobFlow).Spec.Flows[0].Params = map[string]string{"p": "new"} }},
}

// flowFields are the fields of a flow itself.
func flowFields(newObject func() *flowv1.JobFlow) []authoredField {
	fields := fieldsOf("spec", func(f *flowv1.JobFlow) any { return &f.Spec }, newObject)
	isReplaced := func(f authoredField) bool {
		return slices.ContainsFunc(paramFields, func(p authoredField) bool { return p.path == f.path }) || f.path == "spec.flows[].patch.jobSpec"
	}
	fields = append(slices.DeleteFunc(fields, isReplaced), paramFields...)
	return append(fields, labelField("x"), annotationField("x"))
}

func podFlowKind() authoredKind {
	newObject := func() *flowv1.JobFlow { return flowOfTest(flowv1.TemplateGroupPods) }
	newJob := func() *batchv1.Job {
		return &batchv1.Job{Spec: batchv1.JobSpec{Tasks: []batchv1.TaskSpec{{Name: "t"}}}}
	}
	newPatch := func() (*batchv1.JobSpec, client.Object) { j := newJob(); return &j.Spec, j }
	fields := flowFields(newObject)
	for _, f := range fieldsOf("spec", func(j *batchv1.Job) any { return &j.Spec }, newJob, corev1.PodTemplateSpec{}) {
		fields = append(fields, patchField(f, newPatch, completePodJob))
	}
	return authoredKind{
		name: "JobFlow of pods", resource: "flow.volcano.sh/jobflows", covers: "batch.volcano.sh/jobs", fields: fields,
		base: func() client.Object { return newObject() },
		build: func(o client.Object) []client.Object {
			t := &flowv1.JobTemplate{ObjectMeta: metav1.ObjectMeta{Name: "tour"}, Spec: podJobSpecOfTest()}
			t.Spec.Tasks[0].Template.Spec.Containers[0].Args = []string{offeredParams}
			return podJobs(o.(*flowv1.JobFlow), t)
		},
		complete: func(o client.Object) { completeFlow(&o.(*flowv1.JobFlow).Spec) },
	}
}

func robotFlowKind() authoredKind {
	newObject := func() *flowv1.JobFlow { return flowOfTest(flowv1.TemplateGroupRobots) }
	newJob := func() *robotv1.Job {
		g := robotv1.TaskGroupTemplate{Tasks: []robotv1.TaskDefinition{{Name: "t"}}}
		return &robotv1.Job{Spec: robotv1.JobSpec{TaskGroups: []robotv1.TaskGroupDefinition{{Name: "g", TaskGroupTemplate: g}}}}
	}
	newPatch := func() (*robotv1.JobSpec, client.Object) { j := newJob(); return &j.Spec, j }
	fields := flowFields(newObject)
	for _, f := range fieldsOf("spec", func(j *robotv1.Job) any { return &j.Spec }, newJob) {
		fields = append(fields, patchField(f, newPatch, completeRobotJob))
	}
	return authoredKind{
		name: "JobFlow on robots", resource: "flow.volcano.sh/jobflows", covers: "", fields: fields,
		base: func() client.Object { return newObject() },
		build: func(o client.Object) []client.Object {
			t := &robotv1.JobTemplate{ObjectMeta: metav1.ObjectMeta{Name: "tour"}, Spec: robotJobSpecOfTest()}
			t.Spec.TaskGroups[0].Tasks[0].Config.ExecConfig.Args = []string{offeredParams}
			return robotJobs(o.(*flowv1.JobFlow), t)
		},
		complete: func(o client.Object) { completeFlow(&o.(*flowv1.JobFlow).Spec) },
	}
}

func cronFlowKind() authoredKind {
	newObject := func() *cronv1.CronJobFlow {
		c := &cronv1.CronJobFlow{Spec: cronv1.CronJobFlowSpec{Schedule: "* * * * *", Suspend: true}}
		c.Spec.JobFlowTemplate.Spec = flowOfTest(flowv1.TemplateGroupPods).Spec
		return c
	}
	return authoredKind{
		name: "CronJobFlow", resource: "flow.k8s4r.io/cronjobflows", covers: "flow.volcano.sh/jobflows",
		fields: append(fieldsOf("spec", func(c *cronv1.CronJobFlow) any { return &c.Spec }, newObject), labelField("x"), annotationField("x"), cronPatchField),
		base:   func() client.Object { return newObject() },
		build: func(o client.Object) []client.Object {
			c := o.DeepCopyObject().(*cronv1.CronJobFlow)
			c.CreationTimestamp, c.Spec.Suspend = metav1.Time{Time: anyTime.Add(-time.Hour)}, false
			if f := cronjobflow.Plan(anyTime, cronjobflow.Input{Cron: c}).Create; f != nil {
				return []client.Object{f}
			}
			return nil
		},
		complete: func(o client.Object) { completeFlow(&o.(*cronv1.CronJobFlow).Spec.JobFlowTemplate.Spec) },
	}
}

// cronPatchField is a patch with content, of which the right to create Jobs is needed.
var cronPatchField = authoredField{path: "spec.jobFlowTemplate.spec.flows[].patch.jobSpec.queue", set: func(o client.Object) {
	o.(*cronv1.CronJobFlow).Spec.JobFlowTemplate.Spec.Flows[0].Patch = &flowv1.Patch{JobSpec: &runtime.RawExtension{Raw: []byte(`{"queue":"x"}`)}}
}}

func robotJobKind() authoredKind {
	newObject := func() *robotv1.Job { return &robotv1.Job{Spec: robotJobSpecOfTest()} }
	return authoredKind{
		name: "Job on robots", resource: "robot.k8s4r.io/jobs", covers: "",
		fields: append(fieldsOf("spec", func(j *robotv1.Job) any { return &j.Spec }, newObject), labelField("x"), annotationField("x")),
		base:   func() client.Object { return newObject() },
		build: func(o client.Object) (objects []client.Object) {
			for _, g := range job.Plan(anyTime, 0, job.Input{Job: o.(*robotv1.Job)}).Create {
				objects = append(objects, g)
			}
			return objects
		},
		complete: func(o client.Object) { completeRobotJob(&o.(*robotv1.Job).Spec) },
	}
}
