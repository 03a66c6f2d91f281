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
	return nounCommand("token", "Make, list and revoke the tokens by which robots join",
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
		Short: "Make a token by which new robots join",
		Long: `Makes a token, and prints it with the command line of an agent that joins by it.
The token is shown this once: only a hash of it is kept. Robots that join are
created in the namespace of --namespace, with the labels of --labels, which they
cannot change.`,
		Example: "  " + d.program + " token create\n  " + d.program + " token create --uses 20 --robots 'rover-*' --labels site=hall --ttl 2h",
		Args:    checkArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return d.withCluster(&o.conn, func(c *cluster) error { return o.createToken(cmd.Context(), d, c) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.expires, "ttl", 24*time.Hour, "how long the token counts")
	f.IntVar(&o.rights.Uses, "uses", 1, fmt.Sprintf("how many keys it lets in, at most %d; a robot that is installed anew has another key", jointoken.MaxUses))
	f.IntVar(&o.rights.Quota, "max-robots", 0, "how many different robots it lets in; 0: as many as --uses")
	f.StringVar(&o.rights.Robots, "robots", "", "pattern of the robot ids that it is for, such as 'rover-*'; empty: any")
	f.StringToStringVar(&o.rights.Labels, "labels", nil, "labels that its robots get, such as site=hall")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print the token alone")
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
	fmt.Fprintf(d.Out, "%s\n\nIt lets in %s until %s. On the robot:\n\n  %s\n", text, o.describeUses(), token.Expires.UTC().Format(time.RFC3339), agentLine(server, text, rights.Robots))
	if server.URL == "" {
		fmt.Fprintln(d.Err, "note: no server has published where it is; put its address in the place of SERVER")
	}
	return nil
}

func (o *tokenOptions) describeUses() string {
	if o.rights.Uses == 1 {
		return "one robot"
	}
	return fmt.Sprintf("%d robots", cmp.Or(o.rights.Quota, o.rights.Uses))
}

// agentLine returns the command line that starts the agent of a robot that joins.
func agentLine(server serveraddr.Address, token, robots string) string {
	line := []string{"k8s4r-agent", "--server=" + cmp.Or(server.URL, "https://SERVER:8443"), "--token=" + token}
	if hash := hashOf(server.CA); hash != "" {
		line = append(line, "--ca-hash="+hash)
	}
	return strings.Join(append(line, "--robot-id="+strings.ReplaceAll(cmp.Or(robots, "*"), "*", "NAME")), " ")
}

// hashOf returns the fingerprint of the CA. It is empty if the server's certificate is signed by
// a public CA.
func hashOf(ca []byte) string {
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
		Short:   "List the tokens by which robots join, without their secrets",
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
		fmt.Fprintln(d.Err, "There are no join tokens.")
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
		Short: "Let no more robots join by these tokens",
		Long: `Removes the tokens. Robots that have joined by them stay: robot revoke is for
those.`,
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
		return fmt.Errorf("there is no join token %q", id)
	}
	if err != nil {
		return wrapError(err, "revoke token %s", id)
	}
	_, err = fmt.Fprintf(d.Out, "token %s revoked\n", id)
	return err
}
