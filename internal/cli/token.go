package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/platform/serveraddr"
	"k8s4r.io/k8s4r/internal/protocol/identity"
	"k8s4r.io/k8s4r/internal/protocol/keyfile"
)

func tokenCommand(d *deps) *cobra.Command {
	return nounCommand("token", "Create, list and revoke join tokens of robots",
		createTokenCommand(d), listTokensCommand(d), revokeTokenCommand(d))
}

type tokenOptions struct {
	conn    connection
	expires time.Duration
	rights  jointoken.Token
	quiet   bool
}

func createTokenCommand(d *deps) *cobra.Command {
	o := &tokenOptions{}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a join token for new robots",
		Long: `Creates a join token and prints it with the command line of an agent that joins with
it. The token is not shown again, because only a hash of it is stored. Robots that
join are created in the namespace that is given with --namespace. They get the labels
that are given with --labels and cannot change them.`,
		Example: "  " + d.program + " token create\n  " + d.program + " token create --uses 20 --robots 'rover-*' --labels site=hall --ttl 2h",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.withCluster(&o.conn, func(c *cluster) error { return o.createToken(cmd.Context(), d, c) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.expires, "ttl", 24*time.Hour, "how long the token is valid")
	f.IntVar(&o.rights.Uses, "uses", 1, fmt.Sprintf("number of keys that may join with the token, at most %d; a reinstalled robot has another key", jointoken.MaxUses))
	f.IntVar(&o.rights.Quota, "max-robots", 0, "number of different robots that may join with the token; 0 means as many as --uses")
	f.StringVar(&o.rights.Robots, "robots", "", "pattern of the robot ids that may join, such as 'rover-*'; defaults to any")
	f.StringToStringVar(&o.rights.Labels, "labels", nil, "labels of the robots that join, such as site=hall")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only the token")
	o.conn.addFlags(f)
	return cmd
}

func (o *tokenOptions) createToken(ctx context.Context, d *deps, c *cluster) error {
	rights := o.rights
	rights.Expires, rights.Namespace = d.now().Add(o.expires), c.namespace
	if err := rights.Validate(d.now()); err != nil {
		return usagef("%w", err)
	}
	token, text := jointoken.NewToken(rights)
	if err := c.Create(ctx, token.ToSecret(serveraddr.Namespace)); err != nil {
		return wrapError(err, "write token")
	}
	if o.quiet {
		_, err := fmt.Fprintln(d.Out, text)
		return err
	}
	server, err := serveraddr.FindAddress(ctx, c)
	if err != nil && !apierrors.IsNotFound(err) {
		return wrapError(err, "find the server")
	}
	fmt.Fprintf(d.Out, "%s\n\nThe token admits %s until %s. Run on the robot:\n\n  %s\n", text, o.describeUses(), token.Expires.UTC().Format(time.RFC3339), agentCommandLine(server, text, rights.Robots))
	if server.URL == "" {
		fmt.Fprintln(d.Err, "note: k8s4r-server has not published its address; replace SERVER with it")
	}
	return nil
}

func (o *tokenOptions) describeUses() string {
	if o.rights.Uses == 1 {
		return "one robot"
	}
	return fmt.Sprintf("%d robots", cmp.Or(o.rights.Quota, o.rights.Uses))
}

// agentCommandLine returns the command line that starts the agent of a robot that joins.
func agentCommandLine(server serveraddr.Address, token, robots string) string {
	line := []string{"k8s4r-agent", "--server=" + cmp.Or(server.URL, "https://SERVER:8443"), "--token=" + token}
	if hash := caFingerprint(server.CA); hash != "" {
		line = append(line, "--ca-hash="+hash)
	}
	return strings.Join(append(line, "--robot-id="+strings.ReplaceAll(cmp.Or(robots, "*"), "*", "NAME")), " ")
}

// caFingerprint returns the fingerprint of the CA. It is empty if the server's certificate is signed by
// a public CA.
func caFingerprint(ca []byte) string {
	all, err := keyfile.ParseCertificates(ca)
	if err != nil {
		return ""
	}
	return identity.CertificateFingerprint(all[0])
}

func listTokensCommand(d *deps) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List join tokens without their secrets",
		Example: "  " + d.program + " token list",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.withCluster(&conn, func(c *cluster) error { return listTokens(cmd.Context(), d, c) })
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

func listTokens(ctx context.Context, d *deps, c *cluster) error {
	tokens, err := jointoken.ListTokens(ctx, c, serveraddr.Namespace)
	if err != nil {
		return err
	}
	if len(tokens) == 0 {
		fmt.Fprintln(d.Err, "no join tokens found")
		return nil
	}
	t := table{header: []string{"ID", "EXPIRES", "USED", "NAMESPACE", "ROBOTS", "LABELS"}}
	for _, token := range tokens {
		expires := "expired"
		if !token.IsExpired(d.now()) {
			expires = "in " + duration.HumanDuration(token.Expires.Sub(d.now()))
		}
		t.addRow(token.ID, expires, strconv.Itoa(len(token.Used))+"/"+strconv.Itoa(token.Uses), token.Namespace, cmp.Or(token.Robots, "*"), formatPairs(token.Labels))
	}
	t.writeTo(d.Out)
	return nil
}

func formatPairs(labels map[string]string) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, k+"="+labels[k])
	}
	return strings.Join(all, ",")
}

func revokeTokenCommand(d *deps) *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke join tokens",
		Long: `Deletes join tokens. Robots that have joined with them are not affected; use
robot revoke for these.`,
		Example: "  " + d.program + " token revoke abcdef",
		Args:    checkArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, ids []string) error {
			return d.withCluster(&conn, func(c *cluster) error {
				return forEachName(c, ids, func(id string) error { return revokeToken(cmd.Context(), d, c, id) })
			})
		},
	}
	conn.addFlags(cmd.Flags())
	return cmd
}

func revokeToken(ctx context.Context, d *deps, c *cluster, id string) error {
	id, _, _ = strings.Cut(id, ".") // accepts a whole token, too
	err := c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: serveraddr.Namespace, Name: jointoken.SecretName(id)}})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("join token %q not found", id)
	}
	if err != nil {
		return wrapError(err, "revoke token %s", id)
	}
	_, err = fmt.Fprintf(d.Out, "token %s revoked\n", id)
	return err
}
