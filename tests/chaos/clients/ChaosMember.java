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

/** A member of a group by the Java client, of either protocol: a transformer (KIP-447) or a taker. Notes as in member.Notes. */
public class ChaosMember extends ChaosClient implements ConsumerRebalanceListener {
    private static final Duration CALL = Duration.ofSeconds(10);
    private static final double ABORTED_SHARE = 0.2;
    private static final double SLOW_SHARE = 0.05;
    private static final int SLOW_MS = 1_500;
    private static final int PAUSE_MS = 200;

    private final String group = order.get("group");
    private final boolean transforms = kind.equals("transformer");
    private final List<TopicPartition> outputs = partitionsOf(order.get("outputs"));
    private KafkaConsumer<byte[], byte[]> consumer;

    ChaosMember(String[] arguments) throws Exception {
        super(arguments);
        tell("member", ",\"role\":" + quoted(kind) + ",\"protocol\":" + quoted(order.get("protocol")));
    }

    public static void main(String[] arguments) throws Exception {
        new ChaosMember(arguments).run();
        System.exit(0);
    }

    private void tell(String op, String details) {
        note(op, "info", 0, ",\"group\":" + quoted(group) + details);
    }

    private void open() {
        Properties config = new Properties();
        config.put("bootstrap.servers", order.get("bootstrap"));
        config.put("client.id", group + "/" + order.get("process"));
        config.put("group.id", group);
        config.put("group.protocol", order.get("protocol"));
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
        if (order.get("protocol").equals("classic")) {
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
            if (transforms && producer == null && !(beginAnew() && rewind())) {
                Thread.sleep(PAUSE_MS);
                continue;
            }
            try {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(300));
                if (!records.isEmpty()) {
                    if (!transforms) {
                        take(records);
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

    // -- what the group says

    private void places(String op, Collection<TopicPartition> partitions) {
        tell(op, ",\"places\":[" + partitions.stream().map(each -> "[" + quoted(each.topic()) + "," + each.partition() + "]")
                .collect(Collectors.joining(",")) + "]");
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        places("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        places("revoked", partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        places("revoked", partitions);
    }

    // -- what is made of records

    private Map<TopicPartition, OffsetAndMetadata> took(ConsumerRecords<byte[], byte[]> records, long transaction) {
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> found = records.records(partition);
            String offsets = found.stream().map(each -> "" + each.offset()).collect(Collectors.joining(","));
            tell("took", ",\"place\":[" + quoted(partition.topic()) + "," + partition.partition() + "],\"offsets\":[" + offsets
                    + "],\"txn\":" + transaction);
            ends.put(partition, new OffsetAndMetadata(found.get(found.size() - 1).offset() + 1));
        }
        return ends;
    }

    private void acknowledged(Map<TopicPartition, OffsetAndMetadata> ends) {
        tell("committed", ",\"ends\":[" + ends.entrySet().stream()
                .map(each -> "[" + quoted(each.getKey().topic()) + "," + each.getKey().partition() + "," + each.getValue().offset() + "]")
                .collect(Collectors.joining(",")) + "]");
    }

    private void take(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> ends = took(records, -1);
        try {
            consumer.commitSync(ends, CALL);
        } catch (KafkaException failed) {
            return; // it goes on: what it commits next lies behind this
        }
        acknowledged(ends);
    }

    /** One transaction. True when it is committed for certain. */
    private boolean transform(ConsumerRecords<byte[], byte[]> records) throws Exception {
        ConsumerGroupMetadata member = consumer.groupMetadata();
        long transaction = number * 1_000_000L + ++transactions;
        Map<TopicPartition, OffsetAndMetadata> ends = took(records, transaction);
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
            // a call that timed out and must not be followed by another kind of call, or a producer that is of no more use
        }
        if (committed) {
            acknowledged(ends);
        }
        if (!usable) {
            producer.close(Duration.ZERO);
            producer = null;
        }
        return committed;
    }

    /** Back to what is committed; as a new member where that cannot be told. Without a producer that is done when there is one again. */
    private boolean rewind() throws Exception {
        if (producer == null) {
            return false;
        }
        for (int i = 0; i < TRIES_MAX && !stopping; i++) {
            try {
                Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(consumer.assignment()), CALL);
                for (TopicPartition partition : consumer.assignment()) {
                    OffsetAndMetadata offset = found.get(partition);
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
