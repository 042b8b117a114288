// Copies one topic between two clusters exactly once, as a Go team would write it by
// hand: records and the source positions behind them go to the target in one
// transaction, and a restart goes on from the last committed positions.
//
// Producers take turns, so that the next fetch is produced while the last transaction
// commits. Transactions commit in the order of their records, and any error ends the
// process: what is open then is aborted by the next one, which takes over the ids.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	source      = flag.String("source", "", "bootstrap address to read from")
	target      = flag.String("target", "", "bootstrap address to write to")
	topic       = flag.String("topic", "", "topic of the source")
	alias       = flag.String("alias", "", "the copy is ALIAS.TOPIC")
	compression = flag.String("compression", "none", "codec of the copy")
)

const (
	// A transaction takes what was fetched meanwhile, and no more than this.
	transactionRecords = 200_000
	partitionBytes     = 4 << 20
	// Memory for less CPU: records live just as long as their transaction.
	gcPercent = 400
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
	"zstd": kgo.ZstdCompression(),
}

type positions map[int32]int64

func main() {
	flag.Parse()
	debug.SetGCPercent(gcPercent)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	progress := *alias + ".franz-go.progress"
	from, err := kadm.NewOptClient(kgo.SeedBrokers(*source))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := kadm.NewOptClient(kgo.SeedBrokers(*target))
	if err != nil {
		return err
	}
	defer to.Close()
	next, known, err := createTopics(ctx, from, to, progress)
	if err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	// Taking over the ids ends what a former process left open: only then the last
	// progress is known.
	producers := make([]*kgo.Client, 2)
	for n := range producers {
		if producers[n], err = newProducer(ctx, n); err != nil {
			return fmt.Errorf("producer: %w", err)
		}
		defer producers[n].Close()
	}
	if known {
		if err := readProgress(ctx, to, progress, next); err != nil {
			return fmt.Errorf("progress: %w", err)
		}
	}
	consumer, err := newConsumer(ctx, next)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer consumer.Close()
	return copyLoop(ctx, consumer, producers, next, progress)
}

func copyLoop(
	ctx context.Context, consumer *kgo.Client, producers []*kgo.Client, next positions, progress string,
) error {
	remote := *alias + "." + *topic
	via := []kgo.RecordHeader{{Key: "mirror.via", Value: []byte(*alias + "/bench")}}
	committed := make(chan error, 1) // holds the outcome of the transaction before
	committed <- nil
	for turn := 0; ; turn++ {
		fetches := consumer.PollRecords(ctx, transactionRecords)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachError(func(_ string, p int32, err error) { log.Fatalf("partition %d: %v", p, err) })
		if fetches.NumRecords() == 0 {
			continue
		}
		producer := producers[turn%len(producers)]
		if err := producer.BeginTransaction(); err != nil {
			return err
		}
		var failed atomic.Pointer[error]
		promise := func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if count := len(p.Records); count > 0 { // producing overwrites their offsets
				next[p.Partition] = p.Records[count-1].Offset + 1
			}
			for _, record := range p.Records {
				record.Topic = remote
				if record.Headers == nil {
					record.Headers = via // shared: nothing writes to it
				} else {
					record.Headers = append(record.Headers, via[0])
				}
				producer.Produce(ctx, record, promise)
			}
		})
		value, err := json.Marshal(next)
		if err != nil {
			return err
		}
		producer.Produce(ctx, &kgo.Record{Topic: progress, Key: []byte(*topic), Value: value}, promise)
		// The next writer must wait until this is in the log.
		if err := producer.Flush(ctx); err != nil {
			return err
		}
		if err := failed.Load(); err != nil {
			return *err
		}
		if err := <-committed; err != nil {
			return err
		}
		go func() { committed <- producer.EndTransaction(ctx, kgo.TryCommit) }()
	}
}

func newConsumer(ctx context.Context, next positions) (*kgo.Client, error) {
	offsets := map[int32]kgo.Offset{}
	for partition, offset := range next {
		offsets[partition] = kgo.NewOffset().At(offset)
	}
	return kgo.NewClient(
		kgo.SeedBrokers(*source),
		kgo.WithContext(ctx),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(50<<20),
		kgo.FetchMaxPartitionBytes(partitionBytes),
	)
}

func newProducer(ctx context.Context, turn int) (*kgo.Client, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(*target),
		kgo.WithContext(ctx),
		kgo.TransactionalID(fmt.Sprintf("%s.franz-go.%d", *alias, turn)),
		kgo.UnknownTopicRetries(20), // a new topic is not at once known everywhere
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(1_000_000),
		kgo.ProducerBatchCompression(codecs[*compression]),
		kgo.MaxBufferedRecords(transactionRecords+1),
	)
	if err != nil {
		return nil, err
	}
	_, _, err = client.ProducerID(ctx)
	return client, err
}

// createTopics makes the copy and the progress topic; tells where the source begins,
// and whether there may be progress already.
func createTopics(
	ctx context.Context, from, to *kadm.Client, progress string,
) (next positions, known bool, err error) {
	starts, err := from.ListStartOffsets(ctx, *topic)
	if err = errors.Join(err, starts.Error()); err != nil {
		return nil, false, err
	}
	compact := "compact"
	create := func(name string, partitions int, configs map[string]*string) (existed bool, err error) {
		answer, err := to.CreateTopic(ctx, int32(partitions), -1, configs, name)
		if err = errors.Join(err, answer.Err); errors.Is(err, kerr.TopicAlreadyExists) {
			return true, nil
		}
		return false, err
	}
	if _, err = create(*alias+"."+*topic, len(starts[*topic]), nil); err != nil {
		return nil, false, err
	}
	known, err = create(progress, 1, map[string]*string{"cleanup.policy": &compact})
	next = positions{}
	starts.Each(func(each kadm.ListedOffset) { next[each.Partition] = each.Offset })
	return next, known, err
}

// readProgress puts the positions of the last committed transaction into next.
func readProgress(ctx context.Context, to *kadm.Client, progress string, next positions) error {
	ends, err := to.ListCommittedOffsets(ctx, progress)
	if err = errors.Join(err, ends.Error()); err != nil {
		return err
	}
	end := ends[progress][0].Offset
	if end == 0 {
		return nil
	}
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(*target),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{progress: {0: kgo.NewOffset().AtStart()}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // the last record is the marker of a transaction
	)
	if err != nil {
		return err
	}
	defer reader.Close()
	for at := int64(0); at < end; {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			at = record.Offset + 1
			if record.Attrs.IsControl() {
				continue
			}
			if err := json.Unmarshal(record.Value, &next); err != nil {
				return err
			}
		}
	}
	return nil
}
