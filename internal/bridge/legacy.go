package bridge

import (
	"context"
	"errors"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/jointoken"
	"k8s4r.io/k8s4r/internal/wire"
)

// Tokens says which tokens let a robot in.
type Tokens interface {
	// Redeem lets a new robot in with a key, Knows tells whether that was done.
	Redeem(ctx context.Context, text, robot, key string) (jointoken.Token, error)
	Knows(ctx context.Context, text, robot, key string) error
}

// legacyKey stands for the key that an agent of the document does not have.
const legacyKey = "legacy"

// judgesToken tells whether a robot is to show a token before it is told anything:
// with a wrong one somebody else would be sent its tasks.
func (b *Bridge) judgesToken(w word) bool {
	return b.cfg.Tokens != nil && !b.cfg.AllowAnonymous && w.waits && w.protocol == robotv1.ProtocolDocument
}

// checkToken looks at the token of a document agent that registers: it is all that
// it has to show. A robot that is refused is told why. A new one belongs where the
// token says.
func (b *Bridge) checkToken(ctx context.Context, id string, w word, r *robotv1.Robot) (token jointoken.Token, refused bool, err error) {
	if !b.judgesToken(w) {
		return token, false, nil
	}
	if r == nil {
		token, err = b.cfg.Tokens.Redeem(ctx, w.token, id, legacyKey)
	} else {
		err = b.cfg.Tokens.Knows(ctx, w.token, id, legacyKey)
	}
	if r != nil && r.Status.Agent == nil && err != nil { // written down beforehand, and new
		token, err = b.cfg.Tokens.Redeem(ctx, w.token, id, legacyKey)
	}
	why, ok := errors.AsType[*jointoken.RefusedError](err)
	if !ok {
		return token, false, err
	}
	b.drop(wire.KindRegister, "token")
	b.answer(id, &wire.Response{Message: "Registration refused: " + why.Error(), RobotID: id})
	return token, true, nil
}
