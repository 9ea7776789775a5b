import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Decides with Kafka's StandardAuthorizer. Each line of the input is one set: super users, allow.everyone.if.no.acl.found,
 * ACLs that are loaded as a snapshot, ACLs that are added, numbers of ACLs that are removed, and questions. Fields are separated by tabs,
 * entries by semicolons, their parts by spaces. A question without a name is about any resource of its type. Prints one
 * line per set, with 1 for each allowed question and 0 for each denied one.
 */
public final class KafkaAuthorizer {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "client"; }
        public int correlationId() { return 0; }
    }

    static StandardAcl acl(String text) {
        String[] parts = text.split(" ");
        return new StandardAcl(
                ResourceType.fromCode(Byte.parseByte(parts[0])), parts[1], PatternType.fromCode(Byte.parseByte(parts[2])),
                parts[3], parts[4], AclOperation.fromCode(Byte.parseByte(parts[5])),
                AclPermissionType.fromCode(Byte.parseByte(parts[6])));
    }

    static String[] entries(String field) {
        return field.isEmpty() ? new String[0] : field.split(";");
    }

    static Uuid id(int number) {
        return new Uuid(1, number);
    }

    static char decide(StandardAuthorizer authorizer, String question) throws Exception {
        String[] parts = question.split(" ");
        int colon = parts[0].indexOf(':');
        Context context = new Context(
                new KafkaPrincipal(parts[0].substring(0, colon), parts[0].substring(colon + 1)),
                InetAddress.getByName(parts[1]));
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(parts[2]));
        ResourceType type = ResourceType.fromCode(Byte.parseByte(parts[3]));
        AuthorizationResult result;
        if (parts.length == 4) {
            result = authorizer.authorizeByResourceType(context, operation, type);
        } else {
            ResourcePattern resource = new ResourcePattern(type, parts[4], PatternType.LITERAL);
            result = authorizer.authorize(context, List.of(new Action(operation, resource, 1, false, false))).get(0);
        }
        return result == AuthorizationResult.ALLOWED ? '1' : '0';
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            Metrics metrics = new Metrics();
            StandardAuthorizer authorizer = new StandardAuthorizer();
            authorizer.withPluginMetrics(new PluginMetricsImpl(metrics, new LinkedHashMap<>()));
            authorizer.configure(
                    Map.of("super.users", fields[0], "allow.everyone.if.no.acl.found", fields[1], "node.id", "1"));
            int number = 0;
            Map<Uuid, StandardAcl> snapshot = new HashMap<>();
            for (String text : entries(fields[2])) {
                snapshot.put(id(number++), acl(text));
            }
            authorizer.loadSnapshot(snapshot);
            authorizer.completeInitialLoad();
            for (String text : entries(fields[3])) {
                authorizer.addAcl(id(number++), acl(text));
            }
            for (String removed : entries(fields[4])) {
                authorizer.removeAcl(id(Integer.parseInt(removed)));
            }
            StringBuilder decisions = new StringBuilder();
            for (String question : entries(fields[5])) {
                decisions.append(decide(authorizer, question));
            }
            output.println(decisions);
            metrics.close();
        }
        output.flush();
    }
}
