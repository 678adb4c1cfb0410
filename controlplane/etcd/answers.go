package etcd

import (
	"bytes"
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errOddAnswer is the error of a request whose answer does not belong to it, so that no other code has to check answers.
var errOddAnswer = status.Error(codes.Unknown, "the answer does not belong to the request: check that the endpoint is a member of etcd")

// checkedCall makes a request, and checks the answer.
func checkedCall(ctx context.Context, method string, request, answer any, c *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if err := call(ctx, method, request, answer, c, options...); err != nil {
		return err
	}
	return checkAnswer(request, answer)
}

// checkedStream opens a stream whose answers are checked.
func checkedStream(ctx context.Context, description *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, description, c, method, options...)
	return checked{stream}, err
}

type checked struct{ grpc.ClientStream }

// RecvMsg implements grpc.ClientStream.
func (s checked) RecvMsg(answer any) error {
	if err := s.ClientStream.RecvMsg(answer); err != nil {
		return err
	}
	return checkAnswer(nil, answer)
}

// checkAnswer returns an error unless an answer has a header, and what code relies on.
func checkAnswer(request, answer any) error {
	if a, is := answer.(interface {
		GetHeader() *etcdserverpb.ResponseHeader
	}); is && a.GetHeader() == nil {
		return errOddAnswer
	}
	valid := true
	switch a := answer.(type) {
	case *etcdserverpb.RangeResponse:
		valid = inRange(request.(*etcdserverpb.RangeRequest), a.GetKvs())
	case *etcdserverpb.TxnResponse:
		valid = belongs(request.(*etcdserverpb.TxnRequest), a)
	case *etcdserverpb.WatchResponse:
		for _, e := range a.GetEvents() {
			valid = valid && e.GetKv() != nil
		}
	}
	if !valid {
		return errOddAnswer
	}
	return nil
}

// inRange reports whether found keys are in the requested range, in order, so that reading the next page ends.
func inRange(request *etcdserverpb.RangeRequest, found []*mvccpb.KeyValue) bool {
	key, end := request.GetKey(), request.GetRangeEnd()
	for i, kv := range found {
		switch {
		case len(end) == 0 && (i > 0 || !bytes.Equal(kv.GetKey(), key)):
			return false
		case len(end) > 0 && (bytes.Compare(kv.GetKey(), key) < 0 || !bytes.Equal(end, []byte{0}) && bytes.Compare(kv.GetKey(), end) >= 0):
			return false
		case i > 0 && bytes.Compare(kv.GetKey(), found[i-1].GetKey()) <= 0:
			return false
		}
	}
	return true
}

// belongs reports whether a transaction has the answers of its operations.
func belongs(request *etcdserverpb.TxnRequest, answer *etcdserverpb.TxnResponse) bool {
	operations := request.GetFailure()
	if answer.GetSucceeded() {
		operations = request.GetSuccess()
	}
	if len(answer.GetResponses()) != len(operations) || !answer.GetSucceeded() && len(request.GetCompare()) == 0 {
		return false
	}
	for i, part := range answer.GetResponses() {
		if of := operations[i].GetRequestRange(); of != nil && (part.GetResponseRange() == nil || !inRange(of, part.GetResponseRange().GetKvs())) {
			return false
		}
		if of := operations[i].GetRequestTxn(); of != nil && (part.GetResponseTxn() == nil || !belongs(of, part.GetResponseTxn())) {
			return false
		}
	}
	return true
}
