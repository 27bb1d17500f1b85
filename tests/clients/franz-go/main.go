// franz-go as it comes: every codec idempotently, a group of two that shares and commits, an offset by time, an admin call.
// Usage: franz-client HOST:PORT. Prints what is wrong and ends with 1.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic      = "franz"
	partitions = 4
	perCodec   = 1000
	firstTime  = int64(1700000000000)
)

func must(err error, what string) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func open(address string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(address))...)
	must(err, "client")
	return client
}

func createTopic(ctx context.Context, client *kgo.Client) {
	request := kmsg.NewPtrCreateTopicsRequest()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, partitions, -1
	request.Topics = append(request.Topics, wanted)
	response, err := request.RequestWith(ctx, client)
	must(err, "CreateTopics")
	must(kerr.ErrorForCode(response.Topics[0].ErrorCode), "CreateTopics")
}

func produce(ctx context.Context, address string, codec kgo.CompressionCodec, name string) {
	client := open(address, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec))
	defer client.Close()
	var records []*kgo.Record
	for i := 0; i < perCodec; i++ {
		records = append(records, &kgo.Record{
			Key: []byte(fmt.Sprint(i)), Value: []byte(fmt.Sprintf("%s %d", name, i)), Timestamp: time.UnixMilli(firstTime + int64(i)),
			Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte(name)}}})
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		must(result.Err, "produce "+name)
	}
}

type place struct {
	partition int32
	offset    int64
}

// drain polls the members in turn until `wanted` different records came; it counts those of each member.
func drain(ctx context.Context, members []*kgo.Client, wanted int) (map[place]string, []int) {
	got, counts := map[place]string{}, make([]int, len(members))
	for len(got) < wanted {
		for at, member := range members {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			fetches := member.PollFetches(short)
			cancel()
			must(ctx.Err(), fmt.Sprintf("%d of %d records", len(got), wanted))
			fetches.EachError(func(_ string, _ int32, err error) {
				if err != context.DeadlineExceeded {
					must(err, "poll")
				}
			})
			fetches.EachRecord(func(r *kgo.Record) {
				got[place{r.Partition, r.Offset}] = string(r.Value)
				counts[at]++
			})
		}
	}
	return got, counts
}

func main() {
	if len(os.Args) != 2 {
		must(fmt.Errorf("give HOST:PORT"), "usage")
	}
	address := os.Args[1]
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	admin := open(address)
	defer admin.Close()
	createTopic(ctx, admin)
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	for name, codec := range codecs {
		produce(ctx, address, codec, name)
	}
	total := perCodec * len(codecs)

	group := []kgo.Opt{kgo.ConsumerGroup("franz-group"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.DisableAutoCommit()}
	first := open(address, group...)
	got, _ := drain(ctx, []*kgo.Client{first}, total)
	values := map[string]bool{}
	for _, value := range got {
		values[value] = true
	}
	if len(got) != total || len(values) != total {
		must(fmt.Errorf("%d places, %d values, %d sent", len(got), len(values), total), "read")
	}
	must(first.CommitUncommittedOffsets(ctx), "commit")

	// What is committed does not come again, and a second member takes its share.
	second := open(address, group...)
	members := []*kgo.Client{first, second}
	for shared := false; !shared; {
		must(ctx.Err(), "the group did not share its partitions")
		for _, member := range members {
			short, cancelShort := context.WithTimeout(ctx, 100*time.Millisecond)
			if n := member.PollFetches(short).NumRecords(); n > 0 {
				must(fmt.Errorf("%d records", n), "committed records came again")
			}
			cancelShort()
		}
		request := kmsg.NewPtrDescribeGroupsRequest()
		request.Groups = []string{"franz-group"}
		response, err := request.RequestWith(ctx, admin)
		must(err, "DescribeGroups")
		must(kerr.ErrorForCode(response.Groups[0].ErrorCode), "DescribeGroups")
		shared = response.Groups[0].State == "Stable" && len(response.Groups[0].Members) == 2
	}
	produce(ctx, address, kgo.SnappyCompression(), "again")
	_, counts := drain(ctx, members, perCodec)
	if counts[0] == 0 || counts[1] == 0 {
		must(fmt.Errorf("%v", counts), "one member got everything")
	}
	first.Close()
	second.Close()

	// From the record at a time on: nothing older may come.
	seeker := open(address, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AfterMilli(firstTime+perCodec-1)))
	defer seeker.Close()
	records := seeker.PollFetches(ctx)
	must(records.Err(), "seek by time")
	if first := records.Records()[0]; first.Timestamp.UnixMilli() < firstTime+perCodec-1 {
		must(fmt.Errorf("%d", first.Timestamp.UnixMilli()), "the seek by time landed too early")
	}
	fmt.Printf("franz-go: %d records, passed\n", total+perCodec)
}
