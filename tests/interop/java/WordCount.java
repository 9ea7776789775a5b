import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words with Kafka Streams: INPUT OUTPUT PROPERTY... Each count is written as text, with the word as key. Prints ok
 * when the application runs. The application ends at the end of standard input.
 */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        for (String property : Arrays.copyOfRange(args, 2, args.length)) {
            int equals = property.indexOf('=');
            config.put(property.substring(0, equals), property.substring(equals + 1));
        }
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[0], Consumed.with(Serdes.ByteArray(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count()
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(args[1], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((state, former) -> {
            if (state == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.start();
        running.await();
        System.out.write("ok\n".getBytes(StandardCharsets.UTF_8));
        System.out.flush();
        while (System.in.read() >= 0) {
            // the test closes standard input to end the application
        }
        streams.close();
    }
}
