import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java client behind a line protocol. A command is one line. Fields are separated by tabs, bytes are in base64, and
 * null is "-".
 */
public class Client {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final Map<String, KafkaConsumer<byte[], byte[]>> members = new HashMap<>();
    private final Map<String, List<Future<RecordMetadata>>> sent = new HashMap<>();
    private final PrintStream out;

    Client(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] args) throws Exception {
        PrintStream replies = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Client client = new Client(replies);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        replies.println("ok");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                client.run(line.split("\t", -1));
                replies.println("ok");
            } catch (Throwable failed) {
                Throwable cause = failed instanceof ExecutionException ? failed.getCause() : failed;
                replies.println("error\t" + cause.getClass().getSimpleName() + "\t" + chain(cause));
            }
        }
    }

    private static String chain(Throwable failed) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = failed; cause != null; cause = cause.getCause()) {
            text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append(" / ");
        }
        return text.toString().replace('\n', ' ').replace('\t', ' ');
    }

    private void run(String[] command) throws Exception {
        String name = command[1];
        switch (command[0]) {
            case "producer" -> open(name, command);
            case "send" -> send(name, command);
            case "flush" -> flush(name);
            case "init" -> producers.get(name).initTransactions();
            case "begin" -> producers.get(name).beginTransaction();
            case "commit" -> {
                producers.get(name).commitTransaction();
                sent.get(name).clear();
            }
            case "abort" -> {
                producers.get(name).abortTransaction();
                sent.get(name).clear();
            }
            case "close" -> producers.remove(name).close(Duration.ZERO);
            case "consume" -> consume(command);
            case "member" -> member(name, command);
            case "poll" -> {
                for (ConsumerRecord<byte[], byte[]> record : members.get(name).poll(Duration.ofMillis(Long.parseLong(command[2])))) {
                    print(record);
                }
            }
            case "assigned" -> {
                for (TopicPartition assigned : members.get(name).assignment()) {
                    out.println("partition\t" + assigned.partition());
                }
            }
            case "commit-member" -> members.get(name).commitSync();
            case "committed" -> committed(name, command);
            case "offsets" -> offsets(name, members.get(command[2]));
            case "close-member" -> members.remove(name).close();
            default -> throw new IllegalArgumentException(command[0]);
        }
    }

    private void open(String name, String[] command) {
        Properties config = properties(command, 2);
        producers.put(name, new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer()));
        sent.put(name, new ArrayList<>());
    }

    private static Properties properties(String[] command, int from) {
        Properties config = new Properties();
        for (int i = from; i < command.length; i++) {
            int equals = command[i].indexOf('=');
            config.put(command[i].substring(0, equals), command[i].substring(equals + 1));
        }
        return config;
    }

    /** send NAME TOPIC PARTITION TIMESTAMP KEY VALUE [HEADER-KEY HEADER-VALUE ...] */
    private void send(String name, String[] command) {
        Long timestamp = command[4].equals("-") ? null : Long.valueOf(command[4]);
        List<Header> headers = new ArrayList<>();
        for (int i = 7; i + 1 < command.length; i += 2) {
            headers.add(new RecordHeader(command[i], bytes(command[i + 1])));
        }
        sent.get(name).add(producers.get(name).send(new ProducerRecord<>(
                command[2], Integer.valueOf(command[3]), timestamp, bytes(command[5]), bytes(command[6]), headers)));
    }

    private void flush(String name) throws Exception {
        producers.get(name).flush();
        List<Future<RecordMetadata>> futures = new ArrayList<>(sent.get(name));
        sent.get(name).clear();
        for (Future<RecordMetadata> future : futures) {
            future.get();
        }
    }

    /** consume - TOPIC PARTITIONS TIMEOUT_MS PROPERTY...: prints one line per record. */
    private void consume(String[] command) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (String partition : command[3].split(",")) {
            assigned.add(new TopicPartition(command[2], Integer.parseInt(partition)));
        }
        long deadline = System.nanoTime() + Long.parseLong(command[4]) * 1_000_000L;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties(command, 5), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            Map<TopicPartition, Long> ends = consumer.endOffsets(assigned);
            while (assigned.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("ends not reached: " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    print(record);
                }
            }
        }
    }

    /** member NAME topic|pattern TOPIC PROPERTY... */
    private void member(String name, String[] command) {
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties(command, 4), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        if (command[2].equals("pattern")) {
            subscribeToPattern(consumer, command[3]);
        } else {
            consumer.subscribe(List.of(command[3]));
        }
        members.put(name, consumer);
    }

    /** Uses reflection, because the client of Kafka 3.9 has no SubscriptionPattern. */
    private static void subscribeToPattern(KafkaConsumer<byte[], byte[]> consumer, String pattern) {
        try {
            Class<?> kind = Class.forName("org.apache.kafka.clients.consumer.SubscriptionPattern");
            Object subscription = kind.getConstructor(String.class).newInstance(pattern);
            KafkaConsumer.class.getMethod("subscribe", kind).invoke(consumer, subscription);
        } catch (InvocationTargetException failed) {
            throw (RuntimeException) failed.getCause();
        } catch (ReflectiveOperationException unsupported) {
            throw new UnsupportedOperationException(unsupported);
        }
    }

    /** committed NAME TOPIC PARTITIONS: prints one line per partition, in order. */
    private void committed(String name, String[] command) {
        for (String partition : command[3].split(",")) {
            TopicPartition requested = new TopicPartition(command[2], Integer.parseInt(partition));
            OffsetAndMetadata offset = members.get(name).committed(Set.of(requested)).get(requested);
            out.println("offset\t" + (offset == null ? "-" : offset.offset()));
        }
    }

    /** offsets PRODUCER MEMBER: the positions of the member are committed with the transaction. */
    private void offsets(String name, KafkaConsumer<byte[], byte[]> member) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition partition : member.assignment()) {
            positions.put(partition, new OffsetAndMetadata(member.position(partition)));
        }
        producers.get(name).sendOffsetsToTransaction(positions, member.groupMetadata());
    }

    private void print(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder line = new StringBuilder("record\t").append(record.partition()).append('\t')
                .append(record.offset()).append('\t').append(record.timestamp()).append('\t')
                .append(text(record.key())).append('\t').append(text(record.value()));
        for (Header header : record.headers()) {
            line.append('\t').append(header.key()).append('\t').append(text(header.value()));
        }
        out.println(line);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
