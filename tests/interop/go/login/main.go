// Command login writes one record in a transaction and reads it back, by SASL_SSL. Standard input is one JSON object.
// Exit code 3: the broker refused the login.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	timeout     = 60 * time.Second
	exitFailed  = 1
	exitRefused = 3
)

type order struct {
	Bootstrap, Authority, Mechanism, User, Password, Token, Topic, Value string
}

func (o order) mechanism() (sasl.Mechanism, error) {
	switch o.Mechanism {
	case "PLAIN":
		return plain.Auth{User: o.User, Pass: o.Password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: o.User, Pass: o.Password}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: o.User, Pass: o.Password}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: o.Token}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("no such mechanism: %s", o.Mechanism)
}

func (o order) options() ([]kgo.Opt, error) {
	mechanism, err := o.mechanism()
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(o.Authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("no certificate of an authority")
	}
	return []kgo.Opt{
		kgo.SeedBrokers(o.Bootstrap), kgo.DialTLSConfig(&tls.Config{RootCAs: pool}), kgo.SASL(mechanism),
		kgo.AllowAutoTopicCreation(),
	}, nil
}

func (o order) write(ctx context.Context, options []kgo.Opt) error {
	client, err := kgo.NewClient(append(options, kgo.TransactionalID(o.Topic))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: o.Topic, Value: []byte(o.Value)}).FirstErr(); err != nil {
		return err
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}

func (o order) read(ctx context.Context, options []kgo.Opt) error {
	client, err := kgo.NewClient(append(options, kgo.ConsumeTopics(o.Topic), kgo.ConsumerGroup(o.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if records := fetches.Records(); len(records) > 0 {
			fmt.Println(string(records[0].Value))
			return nil
		}
	}
}

func run() error {
	var o order
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	options, err := o.options()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := o.write(ctx, options); err != nil {
		return err
	}
	return o.read(ctx, options)
}

func main() {
	err := run()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, err)
	if errors.Is(err, kerr.SaslAuthenticationFailed) {
		os.Exit(exitRefused)
	}
	os.Exit(exitFailed)
}
