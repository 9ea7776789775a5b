import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;

/**
 * Prints each property of Kafka's brokers in a line, separated by tabs: name, type, scope, default value, a value, and
 * the messages with which Kafka refuses the value for one running broker and for all running brokers. A message is
 * empty if Kafka accepts the value. Arguments are names of further properties.
 */
public class BrokerProperties {
    public static void main(String[] names) {
        Map<String, ConfigDef.ConfigKey> keys = new TreeMap<>(DynamicConfig.Broker.configKeys());
        keys.putAll(AbstractKafkaConfig.CONFIG_DEF.configKeys());
        Map<String, String> scopes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : keys.values()) {
            String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
            String scope = scopes.getOrDefault(key.name, "read-only");
            if (!AbstractKafkaConfig.CONFIG_DEF.configKeys().containsKey(key.name)) scope = "dynamic-only";
            print(key.name, key.type.name(), scope, value, value == null || value.isEmpty() ? "1" : value);
        }
        for (String name : new TreeSet<>(Set.of(names))) print(name, "-", "-", null, "1");
    }

    private static void print(String name, String type, String scope, String defaultValue, String value) {
        String shown = defaultValue == null ? "null" : defaultValue;
        System.out.println(String.join("\t", name, type, scope, shown, value, refusal(name, value, true),
            refusal(name, value, false)));
    }

    private static String refusal(String name, String value, boolean perBroker) {
        Properties properties = new Properties();
        properties.put(name, value);
        try {
            DynamicBrokerConfig.validateConfigs(new Properties(), properties, perBroker);
            return "";
        } catch (RuntimeException error) {
            return error.getMessage();
        }
    }
}
