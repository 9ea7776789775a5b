import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Reads lines "name version hex", has Kafka's own generated class read the bytes, and prints what that class writes again,
 * or "error" with the reason.
 */
public final class Referee {
    private static final String[] PACKAGES = {
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.transaction.generated",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.share.generated",
        "org.apache.kafka.raft.generated",
        "org.apache.kafka.server.log.remote.metadata.storage.generated",
        "org.apache.kafka.storage.internals.log.generated",
    };

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", -1);
            try {
                System.out.println(again(parts[0], Short.parseShort(parts[1]), HexFormat.of().parseHex(parts[2])));
            } catch (Exception problem) {
                System.out.println("error " + problem);
            }
        }
    }

    private static String again(String name, short version, byte[] data) throws Exception {
        Message message = (Message) find(name).getDeclaredConstructor().newInstance();
        ByteBufferAccessor source = new ByteBufferAccessor(ByteBuffer.wrap(data));
        message.read(source, version);
        if (source.remaining() != 0) {
            return "error " + source.remaining() + " bytes left";
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static Class<?> find(String name) throws ClassNotFoundException {
        for (String place : PACKAGES) {
            for (String suffix : new String[] {"", "Data"}) {
                try {
                    return Class.forName(place + "." + name + suffix);
                } catch (ClassNotFoundException absent) {
                    continue;
                }
            }
        }
        throw new ClassNotFoundException(name);
    }
}
