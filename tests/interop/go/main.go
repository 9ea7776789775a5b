// Command client runs franz-go behind a line protocol. A command is one line. Fields are separated by tabs, bytes are in
// base64, and null is "-".
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	commandTimeout = 30 * time.Second
	lineBytesMax   = 64 << 20
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

type producer struct {
	client  *kgo.Client
	results chan error
	sent    int
}

type session struct {
	out       *bufio.Writer
	producers map[string]*producer
}

func main() {
	s := session{bufio.NewWriter(os.Stdout), map[string]*producer{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	s.reply(nil)
	for lines.Scan() {
		ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
		s.reply(s.run(ctx, strings.Split(lines.Text(), "\t")))
		cancel()
	}
}

func (s *session) reply(err error) {
	if err == nil {
		fmt.Fprintln(s.out, "ok")
	} else {
		kind := "Failed"
		if fenced(err) {
			kind = "ProducerFencedException"
		}
		fmt.Fprintf(s.out, "error\t%s\t%s: %s\n", kind, kind, strings.NewReplacer("\n", " ", "\t", " ").Replace(err.Error()))
	}
	s.out.Flush()
}

func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.InvalidProducerIDMapping)
}

func (s *session) run(ctx context.Context, command []string) error {
	name := command[1]
	switch command[0] {
	case "producer":
		return s.open(name, command[2:])
	case "send":
		return s.producers[name].send(command[2:])
	case "flush":
		return s.producers[name].flush(ctx)
	case "init":
		// The client initializes the producer id with the first record. This call reports an error earlier.
		_, _, err := s.producers[name].client.ProducerID(ctx)
		return err
	case "begin":
		return s.producers[name].client.BeginTransaction()
	case "commit":
		return s.producers[name].end(ctx, kgo.TryCommit)
	case "abort":
		return s.producers[name].end(ctx, kgo.TryAbort)
	case "close":
		s.producers[name].client.Close()
		delete(s.producers, name)
		return nil
	case "consume":
		return s.consume(ctx, command[2:])
	}
	return fmt.Errorf("no such command: %s", command[0])
}

// producer - NAME BOOTSTRAP CODEC IDEMPOTENT TRANSACTIONAL-ID|- TRANSACTION-TIMEOUT-MS
func (s *session) open(name string, fields []string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(fields[0]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[fields[1]]),
	}
	if fields[3] != "-" {
		timeoutMs, err := strconv.Atoi(fields[4])
		if err != nil {
			return err
		}
		options = append(options, kgo.TransactionalID(fields[3]),
			kgo.TransactionTimeout(time.Duration(timeoutMs)*time.Millisecond))
	} else if fields[2] != "true" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err == nil {
		s.producers[name] = &producer{client: client, results: make(chan error, 1<<20)}
	}
	return err
}

// send - TOPIC PARTITION TIMESTAMP KEY VALUE [HEADER-KEY HEADER-VALUE ...]
func (p *producer) send(fields []string) error {
	partition, err := strconv.ParseInt(fields[1], 10, 32)
	if err != nil {
		return err
	}
	record := &kgo.Record{Topic: fields[0], Partition: int32(partition), Key: content(fields[3]), Value: content(fields[4])}
	if fields[2] != "-" {
		stamp, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return err
		}
		record.Timestamp = time.UnixMilli(stamp)
	}
	for i := 5; i+1 < len(fields); i += 2 {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: fields[i], Value: content(fields[i+1])})
	}
	p.sent++
	p.client.Produce(context.Background(), record, func(_ *kgo.Record, err error) { p.results <- err })
	return nil
}

func (p *producer) flush(ctx context.Context) error {
	err := p.client.Flush(ctx)
	for ; p.sent > 0 && err == nil; p.sent-- {
		err = <-p.results
	}
	return err
}

func (p *producer) end(ctx context.Context, outcome kgo.TransactionEndTry) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
	return p.client.EndTransaction(ctx, outcome)
}

// consume - BOOTSTRAP TOPIC PARTITIONS ISOLATION: prints one line per record.
func (s *session) consume(ctx context.Context, fields []string) error {
	topic, isolation := fields[1], kgo.ReadUncommitted()
	if fields[3] == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	positions := map[int32]int64{}
	starts := map[int32]kgo.Offset{}
	for _, text := range strings.Split(fields[2], ",") {
		number, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return err
		}
		starts[int32(number)] = kgo.NewOffset().AtStart()
	}
	// With control records, the position advances past the markers at the end of the partition.
	client, err := kgo.NewClient(kgo.SeedBrokers(fields[0]), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}))
	if err != nil {
		return err
	}
	defer client.Close()
	list := kadm.NewClient(client).ListEndOffsets
	if fields[3] == "read_committed" {
		list = kadm.NewClient(client).ListCommittedOffsets
	}
	ends, err := list(ctx, topic)
	if err != nil {
		return err
	}
	for s.missing(ends, topic, starts, positions) {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { s.print(record, ends, positions) })
	}
	return nil
}

func (s *session) missing(
	ends kadm.ListedOffsets, topic string, starts map[int32]kgo.Offset, positions map[int32]int64,
) bool {
	for partition := range starts {
		if end, _ := ends.Lookup(topic, partition); positions[partition] < end.Offset {
			return true
		}
	}
	return false
}

func (s *session) print(record *kgo.Record, ends kadm.ListedOffsets, positions map[int32]int64) {
	positions[record.Partition] = record.Offset + 1
	if end, _ := ends.Lookup(record.Topic, record.Partition); record.Attrs.IsControl() || record.Offset >= end.Offset {
		return
	}
	fmt.Fprintf(s.out, "record\t%d\t%d\t%d\t%s\t%s", record.Partition, record.Offset, record.Timestamp.UnixMilli(),
		text(record.Key), text(record.Value))
	for _, header := range record.Headers {
		fmt.Fprintf(s.out, "\t%s\t%s", header.Key, text(header.Value))
	}
	fmt.Fprintln(s.out)
}

func content(text string) []byte {
	if text == "-" {
		return nil
	}
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return decoded
}

func text(content []byte) string {
	if content == nil {
		return "-"
	}
	return base64.StdEncoding.EncodeToString(content)
}
