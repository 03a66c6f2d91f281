package cli

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"k8s4r.io/k8s4r/internal/protocol/agentupdate"
)

func agentKeyCommand(d *deps) *cobra.Command {
	return nounCommand("agent-key", "Make keys for updates of agents, and sign versions", agentKeyNewCommand(d), agentKeySignCommand(d))
}

func agentKeyNewCommand(d *deps) *cobra.Command {
	return &cobra.Command{
		Use:   "new FILE",
		Short: "Make a key that signs versions of the agent",
		Long: `Makes a key for updates of agents. The private key is written to a new file that only you can
read: keep it off the cluster and the robots. The public key is printed: add it to update.publicKeys
in the policy file of each robot. This connects to nothing.`,
		Example: "  " + d.program + " agent-key new agent.key",
		Args:    checkArgs(cobra.ExactArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return makeAgentKey(d.Out, args[0]) },
	}
}

func makeAgentKey(out io.Writer, path string) error {
	private, public, err := agentupdate.NewKey()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the private key to a new file: %w", err)
	}
	_, err = f.Write(private)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	fmt.Fprintln(out, public)
	return nil
}

// agentKeySign is the command line of agent-key sign.
type agentKeySign struct{ key, version string }

func agentKeySignCommand(d *deps) *cobra.Command {
	c := agentKeySign{}
	cmd := &cobra.Command{
		Use:   "sign PROGRAM",
		Short: "Sign a version of the agent",
		Long: `Signs a version of the agent and prints its manifest, which k8s4r-agent update takes. The signature
binds the version, the platform, the size and the checksum of the program. The platform is read from
the program. This connects to nothing.`,
		Example: "  " + d.program + " agent-key sign --key agent.key --version v0.5.0 k8s4r-agent > k8s4r-agent.json",
		Args:    checkArgs(cobra.ExactArgs(1)),
		RunE:    func(_ *cobra.Command, args []string) error { return c.sign(d.Out, args[0]) },
	}
	cmd.Flags().StringVar(&c.key, "key", "", "`file` with the private key that agent-key new has made (required)")
	cmd.Flags().StringVar(&c.version, "version", "", "`version` of the program, as it prints it with --version (required)")
	return cmd
}

func (c agentKeySign) sign(out io.Writer, program string) error {
	if c.key == "" || c.version == "" {
		return usagef("--key and --version are required")
	}
	if err := agentupdate.ValidateVersion(c.version); err != nil {
		return usagef("--%w", err)
	}
	key, err := readAgentKey(c.key)
	if err != nil {
		return err
	}
	m, err := describeProgram(program)
	if err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	m.Version = c.version
	_, err = out.Write(m.Sign(key).Encode())
	return err
}

func readAgentKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	key, err := agentupdate.ParsePrivateKey(text)
	if err != nil {
		return nil, fmt.Errorf("--key: %s %w", path, err)
	}
	return key, nil
}

// elfArchs are the platforms of agents.
var elfArchs = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm", elf.EM_RISCV: "riscv64"}

// describeProgram returns the manifest of a program without version and signature.
func describeProgram(path string) (m agentupdate.Manifest, err error) {
	f, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, agentupdate.MaxProgram+1))
	if err != nil {
		return m, err
	}
	if len(b) > agentupdate.MaxProgram {
		return m, fmt.Errorf("is larger than %d bytes", agentupdate.MaxProgram)
	}
	header, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return m, fmt.Errorf("is not a program for Linux: %w", err)
	}
	arch := elfArchs[header.Machine]
	if arch == "" {
		return m, fmt.Errorf("is for %s, for which there is no agent", header.Machine)
	}
	sum := sha256.Sum256(b)
	return agentupdate.Manifest{OS: "linux", Arch: arch, Size: int64(len(b)), SHA256: hex.EncodeToString(sum[:])}, nil
}
