import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A client process with the Java client: a producer of any kind, or a reader. Arguments: NAME=VALUE for the fields of common.ClientSpec. */
public class ChaosClient {
    private static final int TRANSACTION_TIMEOUT_MS = 7_000;
    private static final int DELIVERY_TIMEOUT_MS = 30_000;
    private static final int REQUEST_TIMEOUT_MS = 4_000;
    private static final int RECORDS_MAX = 20;
    static final int TRIES_MAX = 6;
    private static final long BURST_MS = 50;
    private static final String DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz";

    final Map<String, String> spec = new HashMap<>();
    final List<TopicPartition> partitions = new ArrayList<>();
    private final Map<TopicPartition, Integer> sequences = new HashMap<>();
    private final FileOutputStream journal;
    final Random random;
    final String kind;
    final String tid;
    final int number;
    volatile boolean stopping;
    private volatile boolean fatal;
    boolean committed; // result of the last completed transaction
    private long ids;
    private int values;
    private int incarnations;
    int transactions;
    private int incarnation;
    KafkaProducer<byte[], byte[]> producer;

    ChaosClient(String[] arguments) throws Exception {
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            spec.put(argument.substring(0, equals), argument.substring(equals + 1));
        }
        partitions.addAll(partitionsOf(spec.get("topics")));
        journal = new FileOutputStream(spec.get("journal"), true);
        random = new Random(Long.parseLong(spec.get("seed")));
        kind = spec.get("kind");
        tid = spec.get("transactional_id");
        number = Integer.parseInt(spec.get("number"));
        Thread inputReader = new Thread(this::awaitEndOfInput);
        inputReader.setDaemon(true);
        inputReader.start();
    }

    public static void main(String[] arguments) throws Exception {
        ChaosClient client = new ChaosClient(arguments);
        switch (client.kind) {
            case "reader" -> client.read();
            case "transactional" -> client.runTransactions();
            default -> client.runStream();
        }
        System.exit(0);
    }

    static List<TopicPartition> partitionsOf(String topics) {
        List<TopicPartition> result = new ArrayList<>();
        for (String topic : topics.split(",")) {
            String[] parts = topic.split(":");
            for (int i = 0; i < Integer.parseInt(parts[1]); i++) {
                result.add(new TopicPartition(parts[0], i));
            }
        }
        return result;
    }

    private void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) { }
        } catch (java.io.IOException closed) {
            // equivalent to the end of the input
        }
        stopping = true;
    }

    // -- the journal

    synchronized long note(String op, String type, long id, String details) {
        long given = id > 0 ? id : ++ids;
        String line = String.format(java.util.Locale.ROOT, "{\"t\":%.6f,\"proc\":\"%s\",\"op\":\"%s\",\"type\":\"%s\",\"id\":%d%s}%n",
                System.nanoTime() / 1e9, spec.get("process"), op, type, given, details);
        try {
            journal.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException failed) {
            System.err.println(failed);
            System.exit(1);
        }
        return given;
    }

    static String quoted(String text) {
        return "\"" + text.replace('\\', '/').replace('"', '\'').replace('\n', ' ').replace('\t', ' ') + "\"";
    }

    static String partitionFields(TopicPartition partition) {
        return ",\"topic\":" + quoted(partition.topic()) + ",\"partition\":" + partition.partition();
    }

    private String nextName() {
        char[] name = new char[8];
        int rest = ++values;
        for (int i = 7; i >= 2; i--, rest /= 36) {
            name[i] = DIGITS.charAt(rest % 36);
        }
        name[1] = DIGITS.charAt(number % 36);
        name[0] = DIGITS.charAt(number / 36);
        return new String(name);
    }

    private static byte[] expand(String name) {
        int sum = 0;
        for (int i = 0; i < name.length(); i++) {
            sum += name.charAt(i);
        }
        return (name + ".".repeat(sum * 7 % 100)).getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String shorten(byte[] value) {
        String text = new String(value, StandardCharsets.ISO_8859_1);
        String name = text.substring(0, Math.min(8, text.length()));
        return java.util.Arrays.equals(expand(name), value) ? name : text;
    }

    /** Add the addresses of the brokers and the security of the user. */
    void connect(Properties config) {
        config.put("bootstrap.servers", spec.get("bootstrap"));
        if (!spec.get("security").isEmpty()) {
            try (java.io.FileReader file = new java.io.FileReader(spec.get("security"))) {
                config.load(file);
            } catch (java.io.IOException failed) {
                throw new java.io.UncheckedIOException(failed);
            }
        }
    }

    // -- producers

    private Properties producerConfig() {
        Properties config = new Properties();
        connect(config);
        config.put("client.id", tid.isEmpty() ? spec.get("process") : tid);
        config.put("acks", "all");
        config.put("linger.ms", "2");
        config.put("request.timeout.ms", "" + REQUEST_TIMEOUT_MS);
        config.put("delivery.timeout.ms", "" + DELIVERY_TIMEOUT_MS);
        config.put("max.block.ms", "20000");
        config.put("reconnect.backoff.max.ms", "500");
        config.put("metadata.max.age.ms", "5000");
        config.put("enable.idempotence", kind.equals("plain") ? "false" : "true");
        if (kind.equals("plain")) {
            config.put("retries", "0");
        }
        if (!tid.isEmpty()) {
            config.put("transactional.id", tid);
            config.put("transaction.timeout.ms", "" + TRANSACTION_TIMEOUT_MS);
            config.put("delivery.timeout.ms", "" + TRANSACTION_TIMEOUT_MS);
        }
        return config;
    }

    private long newIncarnation() {
        incarnation = number * 1000 + ++incarnations;
        String id = tid.isEmpty() ? "" : ",\"tid\":" + quoted(tid);
        long init = note("init", "invoke", 0,
                ",\"incarnation\":" + incarnation + ",\"generation\":" + (tid.isEmpty() ? 0 : 2) + id);
        fatal = false;
        producer = new KafkaProducer<>(producerConfig(), new ByteArraySerializer(), new ByteArraySerializer());
        return init;
    }

    void send(TopicPartition partition, long transaction, byte[] key) {
        String name = nextName();
        String details = partitionFields(partition) + ",\"value\":" + quoted(name);
        if (!kind.equals("plain")) {
            details += ",\"seq\":" + sequences.merge(partition, 1, Integer::sum) + ",\"incarnation\":" + incarnation;
        }
        if (transaction >= 0) {
            details += ",\"txn\":" + transaction + ",\"generation\":2,\"tid\":" + quoted(tid);
        }
        long id = note("produce", "invoke", 0, details);
        try {
            producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), key, expand(name)), (meta, failed) -> {
                if (failed == null) {
                    note("produce", "ok", id, ",\"offset\":" + meta.offset());
                } else {
                    fatal = fatal || failed instanceof OutOfOrderSequenceException || failed instanceof ProducerFencedException;
                    note("produce", "info", id, ",\"reason\":" + quoted("" + failed));
                }
            });
        } catch (KafkaException failed) {
            // The callback may have recorded a completion already. An operation without completion has an unknown result.
        }
    }

    private void runStream() throws Exception {
        double recordsPerBurst = Double.parseDouble(spec.get("records_per_second")) * BURST_MS / 1000;
        note("init", "info", newIncarnation(), "");
        while (!stopping) {
            long burst = Math.max(1, Math.round(-Math.log(1 - random.nextDouble()) * recordsPerBurst));
            for (int i = 0; i < burst; i++) {
                send(partitions.get(random.nextInt(partitions.size())), -1, null);
            }
            Thread.sleep(BURST_MS);
            if (fatal) {
                producer.close(Duration.ZERO);
                note("init", "info", newIncarnation(), "");
            }
        }
        producer.flush();
    }

    private void runTransactions() throws Exception {
        while (!stopping) {
            if (producer == null && !newProducer()) {
                Thread.sleep(200);
                continue;
            }
            if (!runTransaction()) {
                producer.close(Duration.ZERO);
                producer = null;
            }
            Thread.sleep((long) (-1000 * Double.parseDouble(spec.get("pause_seconds")) * Math.log(1 - random.nextDouble())));
        }
    }

    boolean newProducer() {
        long init = newIncarnation();
        for (int i = 0; i < TRIES_MAX && !stopping; i++) {
            try {
                producer.initTransactions();
                note("init", "ok", init, "");
                return true;
            } catch (TimeoutException retriable) {
                continue;
            } catch (KafkaException failed) {
                break;
            }
        }
        note("init", "info", init, "");
        producer.close(Duration.ZERO);
        producer = null;
        return false;
    }

    private boolean runTransaction() throws Exception {
        long transaction = number * 1_000_000L + ++transactions;
        try {
            producer.beginTransaction();
        } catch (KafkaException failed) {
            return false;
        }
        int records = random.nextDouble() < 0.04 ? 0 : 1 + random.nextInt(RECORDS_MAX);
        int spread = 1 + random.nextInt(Math.min(6, partitions.size()));
        int first = random.nextInt(partitions.size());
        for (int i = 0; i < records; i++) {
            send(partitions.get((first + random.nextInt(spread)) % partitions.size()), transaction, null);
            if (random.nextDouble() < 0.05) {
                Thread.sleep(5);
            }
        }
        if (random.nextDouble() < 0.002) {
            Thread.sleep(TRANSACTION_TIMEOUT_MS * 115 / 100);
        }
        return end(transaction, random.nextInt(3) > 0, records > 0);
    }

    boolean end(long transaction, boolean commit, boolean written) {
        String id = written && commit ? ",\"tid\":" + quoted(tid) + ",\"incarnation\":" + incarnation : "";
        long end = note("end", "invoke", 0, ",\"txn\":" + transaction + ",\"commit\":" + commit + id);
        for (int i = 0; i < TRIES_MAX; i++) {
            try {
                if (commit) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                note("end", "ok", end, "");
                committed = commit;
                return true;
            } catch (TimeoutException retriable) {
                continue;
            } catch (KafkaException failed) {
                note("end", "info", end, ",\"reason\":" + quoted("" + failed));
                boolean lost = failed instanceof ProducerFencedException || !commit;
                return !lost && end(transaction, false, written);
            }
        }
        note("end", "info", end, "");
        return false;
    }

    // -- the reader

    private void read() throws Exception {
        Properties config = new Properties();
        boolean committed = spec.get("committed").equalsIgnoreCase("true");
        connect(config);
        config.put("client.id", spec.get("process"));
        config.put("isolation.level", committed ? "read_committed" : "read_uncommitted");
        config.put("auto.offset.reset", "none");
        config.put("request.timeout.ms", "5000");
        config.put("reconnect.backoff.max.ms", "500");
        config.put("metadata.max.age.ms", "5000");
        config.put("fetch.max.wait.ms", "300");
        Map<TopicPartition, Long> positions = new HashMap<>();
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(partitions);
        for (TopicPartition partition : partitions) {
            positions.put(partition, 0L);
            consumer.seek(partition, 0);
        }
        while (!stopping) {
            Map<TopicPartition, StringBuilder> batches = new HashMap<>();
            Map<TopicPartition, Long> ends = new HashMap<>();
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(300))) {
                    TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                    StringBuilder records = batches.computeIfAbsent(partition, key -> new StringBuilder());
                    records.append(records.length() == 0 ? "" : ",").append('[').append(record.offset()).append(',')
                            .append(quoted(shorten(record.value()))).append(']');
                    ends.put(partition, record.offset() + 1);
                }
            } catch (OffsetOutOfRangeException failed) {
                for (TopicPartition partition : failed.partitions()) {
                    long id = begin(partition, committed, positions.get(partition));
                    note("fetch", "fail", id, ",\"error\":1,\"reason\":" + quoted("" + failed));
                    consumer.seek(partition, positions.get(partition));
                }
            }
            for (TopicPartition partition : batches.keySet()) {
                long id = begin(partition, committed, positions.get(partition));
                note("fetch", "ok", id, ",\"records\":[" + batches.get(partition) + "],\"next\":" + ends.get(partition));
                positions.put(partition, ends.get(partition));
            }
        }
        consumer.close(Duration.ofSeconds(5));
    }

    private long begin(TopicPartition partition, boolean committed, long position) {
        return note("fetch", "invoke", 0, partitionFields(partition) + ",\"isolation\":" + (committed ? 1 : 0) + ",\"offset\":" + position);
    }
}
