import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.internals.Sender;
import org.apache.kafka.clients.producer.internals.TransactionManager;
import org.apache.kafka.clients.producer.internals.TransactionalRequestResult;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.internals.ProducerIdAndEpoch;

/**
 * Two-phase commits (KIP-939) with Kafka's Java producer. Its request classes have the fields, and its public methods do not
 * use them, so they are set by reflection.
 *
 * <p>Arguments: BOOTSTRAP TRANSACTIONAL_ID, then one of the following. The program prints one line, `producerId:epoch`.
 *
 * <ul>
 *   <li>`prepare TOPIC VALUE`: write a record, prepare the transaction, and end without closing the producer.
 *   <li>`complete PRODUCER_ID:EPOCH`: keep the prepared transaction. Commit it if it is the named one, or else abort it.
 * </ul>
 */
public class TwoPhaseCommit {
    private static final short TWO_PHASE_COMMIT_VERSION = 6;
    private static final long TIMEOUT_S = 60;
    private final KafkaProducer<byte[], byte[]> producer;
    private final TransactionManager manager;

    TwoPhaseCommit(String bootstrap, String transactionalId) throws ReflectiveOperationException {
        Properties properties = new Properties();
        properties.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
        properties.put(ProducerConfig.TRANSACTION_TWO_PHASE_COMMIT_ENABLE_CONFIG, true);
        producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        manager = (TransactionManager) field(KafkaProducer.class, "transactionManager", producer);
    }

    private static Object field(Class<?> owner, String name, Object of) throws ReflectiveOperationException {
        Field field = owner.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(of);
    }

    /**
     * Initialize the producer by version 6 of InitProducerId, the only one with two-phase commits. Kafka calls it unstable, so
     * its request builders stop at version 5.
     */
    private void initialize(boolean keepPrepared) throws ReflectiveOperationException {
        TransactionalRequestResult done;
        synchronized (manager) { // the sender takes requests from the queue under this lock
            done = manager.initializeTransactions(keepPrepared);
            for (Object handler : (Iterable<?>) field(TransactionManager.class, "pendingRequests", manager)) {
                if (handler.getClass().getSimpleName().equals("InitProducerIdHandler")) {
                    InitProducerIdRequest.Builder builder =
                        (InitProducerIdRequest.Builder) field(handler.getClass(), "builder", handler);
                    builder.data.setEnable2Pc(true).setKeepPreparedTxn(keepPrepared);
                    Field latest = AbstractRequest.Builder.class.getDeclaredField("latestAllowedVersion");
                    latest.setAccessible(true);
                    latest.setShort(builder, TWO_PHASE_COMMIT_VERSION);
                }
            }
        }
        Method wakeup = Sender.class.getDeclaredMethod("wakeup");
        wakeup.setAccessible(true);
        wakeup.invoke(field(KafkaProducer.class, "sender", producer));
        done.await(TIMEOUT_S, TimeUnit.SECONDS, "no response to InitProducerId");
    }

    private ProducerIdAndEpoch prepare(String topic, String value) throws Exception {
        initialize(false);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, value.getBytes(StandardCharsets.UTF_8))).get();
        manager.prepareTransaction();
        return manager.preparedTransactionState();
    }

    private ProducerIdAndEpoch complete(String prepared) throws Exception {
        initialize(true);
        ProducerIdAndEpoch found = manager.preparedTransactionState();
        startedByPredecessor();
        if (name(found).equals(prepared)) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return found;
    }

    /** Do what beginTransaction and the first record do in a transaction of this producer. Without it, it sends no EndTxn. */
    private void startedByPredecessor() throws ReflectiveOperationException {
        manager.maybeUpdateTransactionV2Enabled(false);
        Field started = TransactionManager.class.getDeclaredField("transactionStarted");
        started.setAccessible(true);
        started.setBoolean(manager, true);
    }

    private static String name(ProducerIdAndEpoch state) {
        return state.producerId + ":" + state.epoch;
    }

    public static void main(String[] arguments) throws Exception {
        TwoPhaseCommit owner = new TwoPhaseCommit(arguments[0], arguments[1]);
        ProducerIdAndEpoch state =
            arguments[2].equals("prepare") ? owner.prepare(arguments[3], arguments[4]) : owner.complete(arguments[3]);
        System.out.println(name(state));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
