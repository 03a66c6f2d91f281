package gateway

import (
	"context"
	"errors"

	robotv1 "k8s4r.io/k8s4r/api/robot/v1alpha1"
	"k8s4r.io/k8s4r/internal/platform/jointoken"
	"k8s4r.io/k8s4r/internal/protocol/wire"
)

// Tokens checks join tokens.
type Tokens interface {
	// Redeem admits a new robot with a key, Knows returns nil if it was admitted.
	Redeem(ctx context.Context, text, robot, key string) (jointoken.Token, error)
	CheckUsed(ctx context.Context, text, robot, key string) error
}

// legacyKey stands for the key that a legacy agent does not have.
const legacyKey = "legacy"

// needsToken reports whether a robot's token is checked before it is sent anything.
func (g *Gateway) needsToken(w robotState) bool {
	return g.cfg.Tokens != nil && !g.cfg.AllowAnonymous && w.awaitsResponse && w.protocol == robotv1.ProtocolV1
}

// checkToken checks the token of a legacy agent that registers, and answers if it is
// refused. A new robot is created in the token's namespace.
func (g *Gateway) checkToken(ctx context.Context, id string, w robotState, r *robotv1.Robot) (token jointoken.Token, refused bool, err error) {
	if !g.needsToken(w) {
		return token, false, nil
	}
	if r == nil {
		token, err = g.cfg.Tokens.Redeem(ctx, w.token, id, legacyKey)
	} else {
		err = g.cfg.Tokens.CheckUsed(ctx, w.token, id, legacyKey)
	}
	if r != nil && r.Status.Agent == nil && err != nil { // the Robot was created beforehand
		token, err = g.cfg.Tokens.Redeem(ctx, w.token, id, legacyKey)
	}
	why, ok := errors.AsType[*jointoken.RefusedError](err)
	if !ok {
		return token, false, err
	}
	g.m.countDropped(wire.KindRegister, dropInvalidToken, 1)
	g.sendResponse(id, &wire.Response{Message: "Registration refused: " + why.Error(), RobotID: id})
	return token, true, nil
}
