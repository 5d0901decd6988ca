import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;

/** Tomcat, embedded. */
public class TomcatServer extends HttpServlet {
    public static void main(String[] args) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir") + "/tomcat-" + ProcessHandle.current().pid());
        tomcat.setPort(Integer.parseInt(args[0]));
        Context context = tomcat.addContext("", null);
        Tomcat.addServlet(context, "server", new TomcatServer());
        context.addServletMappingDecoded("/", "server");
        tomcat.getConnector();
        tomcat.start();
        tomcat.getServer().await();
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        if (request.getServletPath().equals("/slow")) {
            sleep();
        }
        response.getWriter().print("generation=" + System.getenv("SUPERVISORD_GENERATION") + "\n");
    }

    static void sleep() {
        try {
            Thread.sleep(300);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
