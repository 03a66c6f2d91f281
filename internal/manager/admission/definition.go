package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/core/placement"
	"k8s4r.io/k8s4r/internal/core/placement/apiconv"
	"k8s4r.io/k8s4r/internal/protocol/interpolate"
	"k8s4r.io/k8s4r/internal/protocol/wire"
	"k8s4r.io/k8s4r/internal/robot/artifact"
	"k8s4r.io/k8s4r/internal/robot/template"
)

// checkDefinition returns what in a task no robot can run. The path is that of the task, and ends in
// a dot. If meta is nil, it is not known yet.
func checkDefinition(path string, d *robotv1.TaskDefinition, meta map[string]string) error {
	var sent wire.TaskSpec // as the robot decodes it
	b, err := json.Marshal(d)
	if err == nil {
		err = json.Unmarshal(b, &sent)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errors.New(strings.TrimSuffix(path, ".")), err)
	}
	errs := []error{checkConfig(&sent)}
	errs = append(errs, checkTexts(d, meta)...)
	errs = append(errs, checkFiles(&sent)...)
	errs = append(errs, checkPortNames(d.Resources))
	if why := apiconv.DescribeOversize(&robotv1.TaskSpec{TaskDefinition: *d, Meta: meta}); why != "" {
		errs = append(errs, errors.New(why))
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s%w", path, err)
		}
	}
	return errors.Join(errs...)
}

// checkConfig checks the config of the driver.
func checkConfig(s *wire.TaskSpec) error {
	c := s.Config
	switch {
	case s.Driver == robotv1.DriverDocker && c.Exec != nil:
		return errors.New("config.execConfig: is another spelling of command and args in dockerConfig, which are set too; remove one of them")
	case s.Driver == robotv1.DriverDocker && c.Docker != nil:
		return c.Docker.Check()
	case s.Driver == robotv1.DriverJava && c.Java != nil:
		return c.Java.Check()
	}
	return nil
}

// checkTexts checks what becomes arguments and variables of the process.
func checkTexts(d *robotv1.TaskDefinition, meta map[string]string) []error {
	var errs []error
	check := func(field, text string, size int) {
		if err := checkText(text, size, meta); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	for _, text := range d.Config.InterpolatedTexts() {
		check("config", text, len(text))
	}
	if j := d.Config.JavaConfig; j != nil {
		for _, text := range j.FixedTexts() {
			if err := checkArgument(text, len(text)); err != nil {
				errs = append(errs, fmt.Errorf("config.javaConfig: %w", err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Env)) {
		check("env["+name+"]", d.Env[name], len(name)+1+len(d.Env[name]))
	}
	return errs
}

// checkText checks one argument or variable of this size in bytes.
func checkText(text string, size int, meta map[string]string) error {
	if err := checkArgument(text, size); err != nil {
		return err
	}
	_, err := interpolate.Expand(text, func(name string) (string, bool) { return "", isKnownReference(name, meta) })
	if err != nil {
		return fmt.Errorf("%.100q: %w; use ${meta.NAME} with a name in meta, ${robot.labels.NAME} or ${robot.attr.NAME}", text, err)
	}
	return nil
}

// checkArgument checks what Linux accepts as an argument or variable of this size in bytes.
func checkArgument(text string, size int) error {
	switch {
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%.100q contains a NUL character, which no argument or variable can have", text)
	case size > interpolate.MaxLength:
		return fmt.Errorf("%.40q… has %d bytes, and Linux accepts at most %d; pass it as a template or an artifact", text, size, interpolate.MaxLength)
	}
	return nil
}

// isKnownReference reports whether some robot may know a reference.
func isKnownReference(name string, meta map[string]string) bool {
	if key, is := strings.CutPrefix(name, "meta."); is {
		_, found := meta[key]
		return found || meta == nil
	}
	if label, is := strings.CutPrefix(name, "robot.labels."); is {
		return len(validation.IsQualifiedName(label)) == 0
	}
	attr, is := strings.CutPrefix(name, "robot.attr.")
	return is && placement.IsAttribute(attr)
}

// checkFiles checks artifacts and templates.
func checkFiles(s *wire.TaskSpec) []error {
	var errs []error
	for i, a := range s.Artifacts {
		r := artifact.Request{Index: i, Source: a.GetterSource, Options: a.GetterOptions, Dest: a.RelativeDest, Mode: artifact.Mode(a.GetterMode)}
		errs = append(errs, r.Check())
	}
	for i, t := range s.Templates {
		r := template.Template{
			Index: i, SourcePath: t.SourcePath, Embedded: t.EmbeddedTmpl, DestPath: t.DestPath, Perms: t.Perms, LeftDelim: t.LeftDelim, RightDelim: t.RightDelim,
		}
		errs = append(errs, r.Check(), checkSignal(i, &t))
	}
	return errs
}

// checkSignal checks changeSignal, which changeMode signal needs.
func checkSignal(i int, t *wire.Template) error {
	switch known := unix.SignalNum(t.ChangeSignal) != 0; {
	case t.ChangeMode == "signal" && !known:
		return fmt.Errorf("templates[%d].changeSignal: unknown signal %.20q; changeMode signal needs one such as SIGHUP", i, t.ChangeSignal)
	case t.ChangeMode != "signal" && t.ChangeSignal != "":
		return fmt.Errorf("templates[%d].changeSignal: has no effect without changeMode signal; set that, or omit it", i)
	}
	return nil
}

// checkPortNames refuses two ports whose variables have the same name.
func checkPortNames(r *robotv1.Resources) error {
	seen := map[string]bool{}
	if r == nil {
		return nil
	}
	for _, n := range r.Networks {
		for _, p := range n.Ports {
			if seen[p.Name] {
				return fmt.Errorf("resources.networks: two ports are named %q; give each its own name", p.Name)
			}
			seen[p.Name] = true
		}
	}
	return nil
}
