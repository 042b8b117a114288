import java.io.Reader;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.TreeMap;

/** Prints what java.util.Properties reads from each file, one line a file. */
public class ReadProperties {
    public static void main(String[] files) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String file : files) {
            Properties read = new Properties();
            try (Reader text = Files.newBufferedReader(Path.of(file), StandardCharsets.UTF_8)) {
                read.load(text);
                for (var pair : new TreeMap<>(read).entrySet()) {
                    out.append(encoded(pair.getKey())).append('=').append(encoded(pair.getValue())).append('&');
                }
            } catch (IllegalArgumentException malformed) {
                out.append('!');
            }
            out.append('\n');
        }
        System.out.print(out);
    }

    private static String encoded(Object text) {
        return URLEncoder.encode((String) text, StandardCharsets.UTF_8);
    }
}
