import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A group member with the Java client, of the classic or the consumer protocol: a transformer (KIP-447) or a committer. Journal as in member.MemberJournal. */
public class ChaosMember extends ChaosClient implements ConsumerRebalanceListener {
    private static final Duration CALL = Duration.ofSeconds(10);
    private static final double ABORTED_SHARE = 0.2;
    private static final double SLOW_SHARE = 0.05;
    private static final int SLOW_MS = 1_500;
    private static final int PAUSE_MS = 200;

    private final String group = spec.get("group");
    private final boolean transforms = kind.equals("transformer");
    private final List<TopicPartition> outputs = partitionsOf(spec.get("outputs"));
    private KafkaConsumer<byte[], byte[]> consumer;

    ChaosMember(String[] arguments) throws Exception {
        super(arguments);
        write("member", ",\"role\":" + quoted(kind) + ",\"protocol\":" + quoted(spec.get("protocol")));
    }

    public static void main(String[] arguments) throws Exception {
        new ChaosMember(arguments).run();
        System.exit(0);
    }

    private void write(String op, String details) {
        note(op, "info", 0, ",\"group\":" + quoted(group) + details);
    }

    private void open() {
        Properties config = new Properties();
        connect(config);
        config.put("client.id", group + "/" + spec.get("process"));
        config.put("group.id", group);
        config.put("group.protocol", spec.get("protocol"));
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        config.put("isolation.level", "read_committed");
        config.put("max.poll.records", "50");
        config.put("max.poll.interval.ms", "12000");
        config.put("request.timeout.ms", "5000");
        config.put("default.api.timeout.ms", "10000");
        config.put("reconnect.backoff.max.ms", "500");
        config.put("metadata.max.age.ms", "5000");
        config.put("fetch.max.wait.ms", "300");
        if (spec.get("protocol").equals("classic")) {
            config.put("session.timeout.ms", "3000");
            config.put("heartbeat.interval.ms", "500");
            config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + (transforms ? "CooperativeSticky" : "Range") + "Assignor");
        }
        consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(partitions.stream().map(TopicPartition::topic).distinct().toList(), this);
    }

    private void run() throws Exception {
        open();
        while (!stopping) {
            if (transforms && producer == null && !(newProducer() && rewind())) {
                Thread.sleep(PAUSE_MS);
                continue;
            }
            try {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(300));
                if (!records.isEmpty()) {
                    if (!transforms) {
                        commitBatch(records);
                    } else if (!transform(records)) {
                        rewind();
                    }
                }
            } catch (KafkaException failed) {
                if (transforms) {
                    rewind();
                }
            }
            Thread.sleep(random.nextInt(PAUSE_MS));
        }
        consumer.close(Duration.ofSeconds(5));
    }

    // -- rebalances

    private void writePartitions(String op, Collection<TopicPartition> partitions) {
        write(op, ",\"partitions\":[" + partitions.stream().map(partition -> "[" + quoted(partition.topic()) + "," + partition.partition() + "]")
                .collect(Collectors.joining(",")) + "]");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        writePartitions("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        writePartitions("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        writePartitions("revoked", partitions);
    }

    // -- processing of records

    private Map<TopicPartition, OffsetAndMetadata> writeConsumed(ConsumerRecords<byte[], byte[]> records, long transaction) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> batch = records.records(partition);
            String offsets = batch.stream().map(record -> "" + record.offset()).collect(Collectors.joining(","));
            write("consumed", ",\"partition\":[" + quoted(partition.topic()) + "," + partition.partition() + "],\"offsets\":[" + offsets
                    + "],\"txn\":" + transaction);
            ends.put(partition, new OffsetAndMetadata(batch.get(batch.size() - 1).offset() + 1));
        }
        return ends;
    }

    private void writeCommitted(Map<TopicPartition, OffsetAndMetadata> ends) {
        write("committed", ",\"ends\":[" + ends.entrySet().stream()
                .map(end -> "[" + quoted(end.getKey().topic()) + "," + end.getKey().partition() + "," + end.getValue().offset() + "]")
                .collect(Collectors.joining(",")) + "]");
    }

    private void commitBatch(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> ends = writeConsumed(records, -1);
        try {
            consumer.commitSync(ends, CALL);
        } catch (KafkaException failed) {
            return; // the next commit includes these offsets
        }
        writeCommitted(ends);
    }

    /** Run one transaction for the records. Return true if it is committed, false if it is aborted or unknown. */
    private boolean transform(ConsumerRecords<byte[], byte[]> records) throws Exception {
        ConsumerGroupMetadata member = consumer.groupMetadata();
        long transaction = number * 1_000_000L + ++transactions;
        Map<TopicPartition, OffsetAndMetadata> ends = writeConsumed(records, transaction);
        boolean usable = false;
        committed = false;
        try {
            producer.beginTransaction();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                String key = group + "|" + record.topic() + "|" + record.partition() + "|" + record.offset();
                send(outputs.get(random.nextInt(outputs.size())), transaction, key.getBytes(StandardCharsets.ISO_8859_1));
            }
            if (random.nextDouble() < SLOW_SHARE) {
                Thread.sleep(SLOW_MS);
            }
            boolean accepted = true;
            try {
                producer.sendOffsetsToTransaction(ends, member);
            } catch (KafkaException failed) {
                accepted = false;
            }
            usable = end(transaction, accepted && random.nextDouble() > ABORTED_SHARE, true);
        } catch (KafkaException | IllegalStateException failed) {
            // a call timed out, after which the client permits no other call, or the producer is unusable
        }
        if (committed) {
            writeCommitted(ends);
        }
        if (!usable) {
            producer.close(Duration.ZERO);
            producer = null;
        }
        return committed;
    }

    /** Seek to the committed offsets. If they cannot be fetched, rejoin as a new member. Return false without a producer; the next one rewinds. */
    private boolean rewind() throws Exception {
        if (producer == null) {
            return false;
        }
        for (int i = 0; i < TRIES_MAX && !stopping; i++) {
            try {
                Map<TopicPartition, OffsetAndMetadata> offsets = consumer.committed(new HashSet<>(consumer.assignment()), CALL);
                for (TopicPartition partition : consumer.assignment()) {
                    OffsetAndMetadata offset = offsets.get(partition);
                    consumer.seek(partition, offset == null ? 0 : offset.offset());
                }
                return true;
            } catch (KafkaException failed) {
                Thread.sleep(PAUSE_MS);
            }
        }
        consumer.close(Duration.ofSeconds(5));
        open();
        return true;
    }
}
