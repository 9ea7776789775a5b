import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads lines of rules, tab and a Name in DER as hexadecimal. Prints the subject, tab and Kafka's principal. */
public class SubjectNames {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            String subject = new X500Principal(HexFormat.of().parseHex(parts[1])).getName();
            String name;
            try {
                name = "=" + SslPrincipalMapper.fromRules(parts[0]).getName(subject);
            } catch (Exception error) {
                name = error.getClass().getSimpleName();
            }
            out.println(subject + "\t" + name);
        }
    }
}
