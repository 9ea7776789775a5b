import java.io.File;
import java.lang.reflect.Proxy;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Runs Kafka's cleaner on a log, from its start to its active segment, once for each given time. Prints the first dirty offset
 * after each run. Arguments: directory, segment bytes, index interval, delete retention, and times in milliseconds.
 */
public final class KafkaCleaner {
    public static void main(String[] arguments) throws Exception {
        long firstMs = Long.parseLong(arguments[4]);
        Time time = (Time) Proxy.newProxyInstance(
                Time.class.getClassLoader(),
                new Class<?>[] {Time.class},
                (proxy, method, values) ->
                        method.getName().equals("milliseconds") ? (Object) firstMs : method.invoke(Time.SYSTEM, values));
        LogConfig config = new LogConfig(Map.of(
                "cleanup.policy", "compact",
                "internal.segment.bytes", arguments[1],
                "index.interval.bytes", arguments[2],
                "delete.retention.ms", arguments[3]));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(
                new File(arguments[0]), config, 0L, 0L, scheduler, new BrokerTopicStats(), time, 300_000,
                new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1), true,
                Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time);
        Cleaner cleaner = new Cleaner(
                0, new SkimpyOffsetMap(1 << 20), 65_536, 1 << 20, 0.9, throttler, time, (TopicPartition ignored) -> {});
        for (int pass = 4; pass < arguments.length; pass++) {
            long end = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
            LogToClean cleanable = new LogToClean(log, 0L, end, false);
            System.out.println(cleaner.doClean(cleanable, Long.parseLong(arguments[pass])).getKey());
        }
        log.close();
        scheduler.shutdown();
    }
}
